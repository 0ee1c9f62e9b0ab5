// Opens text files, block by block (plain text, gzip, zstd, JSON lines), and divides a text into training and
// validation. synthetic/run_text.h opens the text of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

// What text files may contain: UTF-8, or any bytes for tokenizers that accept them.
enum class Content { utf8, bytes };
constexpr Content content_for(config::TokenizerKind kind) {
  return kind == config::TokenizerKind::bytes ? Content::bytes : Content::utf8;
}

// Opens the files that `patterns` match as one text. A pattern is a path whose last component may contain * and ?.
// Patterns are read in the given order, the matches of a pattern sorted by name. Files may be gzip or zstd. In JSON
// lines (is_json_lines()), which are always UTF-8, the field `options.json_field` of each line is a document; documents
// are joined by `options.separator`. Empty lines, empty documents and a byte order mark at the start of a file are
// skipped; options.skip_bad_rows also skips malformed lines and logs their number as a warning. Throws UserError if a
// pattern has no match or a file is empty.
std::unique_ptr<tokenizers::TextSource> open_text(const std::vector<std::string>& patterns,
                                                  const config::DataOptions& options, Content content = Content::utf8);

// Returns the files that the patterns match, in order. Throws UserError if a pattern has no match.
std::vector<std::filesystem::path> expand_patterns(const std::vector<std::string>& patterns);

// Returns the extension of a file name in lower case, ignoring .gz and .zst: ".jsonl" for "a.JSONL.gz".
std::string file_ending(const std::filesystem::path& path);
// Returns whether the file name ends in .jsonl, .json, .ndjson or .jsonlines.
bool is_json_lines(const std::filesystem::path& path);

enum class Split { train, validation };

// Names the data of a split in messages: its files, the generator or "the built-in corpus".
std::string corpus_name(const config::DataOptions& options, Split split);
// Returns how the validation split is held out: "0.01 of texts/*.txt, documents drawn from all of it". Empty if
// validation files are given, or pairs.
std::string held_out_name(const config::DataOptions& options);
// Returns "a.txt" or "a.txt and 3 more".
std::string named_together(const std::vector<std::string>& files);

// A part of a text, in bytes or tokens: [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Returns the documents of a text of this size, given where each begins.
std::vector<Range> documents_between(const std::vector<std::int64_t>& starts, std::int64_t size);
// Draws documents, ascending, with about `share` of the total size, spread over the text: at least one, but not all of
// two or more. They depend only on the sizes, so every run of the same text has the same validation split.
std::vector<Range> drawn_documents(const std::vector<Range>& documents, double share);
// Returns the gaps between ascending ranges within [0, size).
std::vector<Range> complement(const std::vector<Range>& ranges, std::int64_t size);

// Returns one split of a text. With order `shuffled`, documents drawn from the whole text are for validation; with
// order `given`, and for a text of a single document, its last lines. About `share` of the bytes is held out, and each
// split has at least one line. `name` is the text in messages. The first call of next() throws UserError if the text
// has a single line.
std::unique_ptr<tokenizers::TextSource> split_of(std::unique_ptr<tokenizers::TextSource> whole,
                                                 const config::DataOptions& options, Split split, std::string name);

}  // namespace headroom::data
