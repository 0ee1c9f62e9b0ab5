// Text that is read block by block: what tokenizers are trained on.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::tokenizers {

// A sequence of text blocks, each valid UTF-8 (unless the source is of bytes) that ends at a line end (or at the end of
// the text), a few hundred kilobytes at most unless one line is longer; a line of more than four megabytes comes in
// pieces cut between characters. The blocks of the same files are the same every time. Bad input (missing, empty,
// binary, not UTF-8, truncated gzip, malformed JSON line) is a UserError naming the file and the byte or line.
//
// A file that does not end with a line end gets one when another follows, so that no line spans two files.
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

}  // namespace headroom::tokenizers
