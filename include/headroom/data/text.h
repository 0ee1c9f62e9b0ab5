// Raw text from files, block by block: plain UTF-8, gzip, JSON lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"

namespace headroom::data {

// A sequence of text blocks, each valid UTF-8 that ends at a line end (or at the end of its file), a few hundred
// kilobytes at most unless one line is longer. Bad input (missing, empty, not UTF-8, truncated gzip, malformed
// JSON line) is a MisuseError naming the file and the byte or line.
class TextSource {
 public:
  virtual ~TextSource() = default;
  virtual bool next(std::string& block) = 0;  // false at the end
  virtual void rewind() = 0;
  virtual std::int64_t bytes_read() const = 0;  // of the input files, for progress
  virtual std::int64_t bytes_total() const = 0;
  // Identifies the content for caching: changes when any file's path, size or modification time does.
  virtual std::string fingerprint() const = 0;
};

// `patterns` are paths with * and ? allowed in the last component, in the order given, matches sorted by name.
// Names ending in .jsonl(.gz) are JSON lines: `options.json_field` of each line is a document, documents are joined
// by `options.separator`. Throws MisuseError for a pattern without a match.
std::unique_ptr<TextSource> open_text(const std::vector<std::string>& patterns, const config::DataOptions& options);

enum class Part { train, validation };

// The corpus that is always there: the Python sources and C++ headers of the installed torch, in a fixed order,
// every 20th file for validation. Throws Error when torch's folder cannot be found.
std::unique_ptr<TextSource> open_built_in_corpus(Part part);

// The text of one part of a run: options.train / options.validation, or the built-in corpus when both are empty.
// With train given but no validation, throws MisuseError naming data.validation.
std::unique_ptr<TextSource> open_part(const config::DataOptions& options, Part part);

}  // namespace headroom::data
