// Opens the text of a run, block by block: plain text, gzip, zstd, JSON lines, generated text or the built-in corpus.
#pragma once

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

// `patterns` are paths with * and ? allowed in the last component, read in the given order, matches sorted by name. Any
// file may be gzip or zstd. Of JSON lines (is_json_lines()), always UTF-8, the field `options.json_field` of each line
// is a document; documents are joined by `options.separator`. Empty lines and documents are skipped, with
// options.skip_bad_rows also malformed lines, which are counted in a warning. A byte order mark at the start of a file
// is skipped. Throws UserError for a pattern without a match and for an empty file.
std::unique_ptr<tokenizers::TextSource> open_text(const std::vector<std::string>& patterns,
                                                  const config::DataOptions& options, Content content = Content::utf8);

// The files that the patterns match, in order. Throws UserError for a pattern without a match.
std::vector<std::filesystem::path> expand_patterns(const std::vector<std::string>& patterns);

// The ending of a file name in lower case, without .gz or .zst: ".jsonl" for "a.JSONL.gz".
std::string file_ending(const std::filesystem::path& path);
// Whether the file name ends in .jsonl, .json, .ndjson or .jsonlines.
bool is_json_lines(const std::filesystem::path& path);

enum class Split { train, validation };

// Name of the data of a split for messages: its files, the generator or "the built-in corpus".
std::string corpus_name(const config::DataOptions& options, Split split);
// "a.txt", "a.txt and 3 more".
std::string named_together(const std::vector<std::string>& files);

// The built-in corpus: the Python sources and C++ headers of the installed torch (folder $HEADROOM_TORCH_DIR, else the
// one that Headroom was built with). Of the files sorted by name, every 20th belongs to validation, which uses files of
// at most 128 KiB up to a total of 1 MiB. A split is ordered by a hash of the file names, so that any part of it is a
// mixture. Files that are empty, above 16 MiB or invalid UTF-8 are skipped, symbolic links not followed. Throws Error
// if the folder cannot be found or has no such files.
std::unique_ptr<tokenizers::TextSource> open_built_in_corpus(Split split);

// The text of one split of a run: options.train or options.validation. If only the first is set, the validation split
// is its last lines, about options.validation_share of the bytes and at least one line for each split. If both are
// empty, it is the output of options.generator or the built-in corpus. Throws UserError naming data.train if only
// data.validation is set, naming data.validation if no line can be held out (when the text is first read).
std::unique_ptr<tokenizers::TextSource> open_split(const config::DataOptions& options, Split split,
                                                   Content content = Content::utf8);

}  // namespace headroom::data
