// One file as text that has been checked: the three kinds that a tokenizers::TextSource strings together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "text.h"

namespace headroom::data {

class TextFile {
 public:
  virtual ~TextFile() = default;
  // Appends the next stretch; false at the end. Pieces may be cut inside a character, the whole is valid UTF-8.
  // `starts` tells whether a document begins with it, which the caller must set apart from what was before.
  virtual bool more(std::string& text, bool& starts) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file
  // Rows that were left out so far, and what was wrong with the first.
  struct BadRows {
    std::int64_t count = 0;
    std::string first;
  };
  virtual BadRows bad_rows() const { return {}; }
};

// Throws UserError naming the file and byte: empty, binary (a NUL byte), not UTF-8 where it must be.
std::unique_ptr<TextFile> open_plain_text(const std::filesystem::path& path, Content content = Content::utf8);

// One document a line, in the string `field` of a JSON object. Throws UserError naming the file and line, unless such
// lines are to be skipped.
std::unique_ptr<TextFile> open_json_lines(const std::filesystem::path& path, const std::string& field,
                                          bool skip_bad_rows = false);

// A file read whole; unreadable, empty, over-long and not-UTF-8 ones have no text instead of being errors.
std::unique_ptr<TextFile> open_leniently(const std::filesystem::path& path);

}  // namespace headroom::data
