// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

// What some programs begin a file with; no part of its text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
// The text of a file without a byte order mark at its beginning.
constexpr std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}
// U+FFFD: replaces bytes that are no character.
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

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

struct CodePoint {
  char32_t code = 0;
  std::size_t size = 0;  // bytes; 0: the text does not begin with a well-formed character
};
// The first character of a text that is not empty.
CodePoint first_code_point(std::string_view text);

// Appends the character.
void append_code_point(std::string& text, char32_t code);

// Whether the byte is none that a character begins with.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

// How many characters a text has, if it is UTF-8.
std::size_t count_characters(std::string_view text);

// The largest cut <= `at` that does not fall inside a character of `text`; `at` itself where that is not UTF-8.
std::size_t character_boundary(std::string_view text, std::size_t at);

// How many bytes at the end are the beginning of a character that more bytes could complete.
std::size_t unfinished_bytes(std::string_view text);

// Every byte that belongs to no character replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

}  // namespace headroom
