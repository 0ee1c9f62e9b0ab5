// Raw text from files, block by block: plain UTF-8, gzip, zstd, JSON lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/tokenizers/text_source.h"

namespace headroom::data {

// What files of text may hold: UTF-8, or, for tokenizers that take any, bytes in whichever encoding, cut anywhere.
enum class Content { utf8, bytes };
constexpr Content content_for(config::TokenizerKind kind) {
  return kind == config::TokenizerKind::bytes ? Content::bytes : Content::utf8;
}

// `patterns` are paths with * and ? allowed in the last component, in the order given, matches sorted by name.
// Any file may be gzip or zstd. Names ending in .jsonl or .json (with or without .gz, .zst) are JSON lines:
// `options.json_field` of each line is a document, documents are joined by `options.separator`; empty lines and
// documents are skipped, and with options.skip_bad_rows those that are no such object, which a warning counts. Throws
// UserError for a pattern without a match, and for an empty file. JSON lines are always UTF-8.
std::unique_ptr<tokenizers::TextSource> open_text(const std::vector<std::string>& patterns,
                                                  const config::DataOptions& options, Content content = Content::utf8);

// The files that such patterns name, in order. Throws UserError for a pattern without a match.
std::vector<std::filesystem::path> expand_patterns(const std::vector<std::string>& patterns);

enum class Split { train, validation };

// What messages call the data of one split: its files, what is generated, "the built-in corpus".
std::string corpus_name(const config::DataOptions& options, Split split);
// "a.txt", "a.txt and 3 more".
std::string named_together(const std::vector<std::string>& files);

// The corpus that is always there: the Python sources and C++ headers of the installed torch (folder
// $HEADROOM_TORCH_DIR, else the one that Headroom was built with). Of the files sorted by name, every 20th is for
// validation; of those, as many of at most 128 KiB are used as make up 1 MiB. Inside a split they are in the order of
// a hash of their names, so that any stretch of it is a mixture of all kinds. Files that are empty, over 16 MiB or not
// valid UTF-8 are left out, symbolic links not followed. Throws Error when torch's folder cannot be found or holds no
// such file.
std::unique_ptr<tokenizers::TextSource> open_built_in_corpus(Split split);

// The text of one split of a run: options.train / options.validation; where only the first names files, their last
// lines, options.validation_fraction of the bytes, are the validation split; when both are empty, what
// options.generator makes (puzzles), or the built-in corpus. Throws UserError naming data.train when only
// data.validation is given, data.validation when nothing can be held out.
std::unique_ptr<tokenizers::TextSource> open_split(const config::DataOptions& options, Split split,
                                                   Content content = Content::utf8);

}  // namespace headroom::data
