// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::data {

// What some programs begin a file with; no part of its text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Checks text that comes in pieces, cut anywhere.
class Utf8Checker {
 public:
  // The offset, counted from the first byte ever fed, where the first ill-formed character begins; nothing while all
  // is well. Not to be fed further after that.
  std::optional<std::uint64_t> feed(std::string_view bytes);
  // The same at the end of the text, where an unfinished character is ill-formed too.
  std::optional<std::uint64_t> finish() const;

 private:
  bool step(unsigned char byte);
  std::uint64_t fed_ = 0, start_ = 0;  // start_: of the character under way
  int missing_ = 0;                    // continuation bytes still to come
  unsigned char low_ = 0x80, high_ = 0xbf;
};

bool is_utf8(std::string_view text);

// The largest cut <= `at` that does not fall inside a character of `text`; `at` itself where that is not UTF-8.
std::size_t character_boundary(std::string_view text, std::size_t at);

}  // namespace headroom::data
