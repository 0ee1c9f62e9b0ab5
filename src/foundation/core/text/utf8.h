// UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF), white space, and the case of ASCII
// letters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

// Some programs write a byte order mark at the start of a file. It is not part of the text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}
// U+FFFD, the replacement character.
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Validates text that arrives in chunks. A chunk may end inside a character.
class Utf8Checker {
 public:
  // Returns the offset of the first ill-formed character, counted from the first byte ever passed to feed(), or nullopt
  // if there is none so far. Must not be called again after an error.
  std::optional<std::uint64_t> feed(std::string_view bytes);
  // Ends the text. An incomplete character at the end is ill-formed; returns its offset, or nullopt if there is none.
  std::optional<std::uint64_t> finish() const;

 private:
  bool step(unsigned char byte);
  std::uint64_t fed_ = 0, start_ = 0;  // start_: offset of the current character
  int missing_ = 0;                    // continuation bytes that the current character still needs
  unsigned char low_ = 0x80, high_ = 0xbf;
};

bool is_utf8(std::string_view text);

struct CodePoint {
  char32_t code = 0;
  std::size_t size = 0;  // bytes; 0: the text does not begin with a well-formed character
};
// Returns the first character of `text`, which must not be empty.
CodePoint first_code_point(std::string_view text);

void append_code_point(std::string& text, char32_t code);

// Returns whether the byte is a continuation byte.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

// Returns the number of characters in `text`, which must be valid UTF-8.
std::size_t count_characters(std::string_view text);

// Returns the number of columns that `text` takes on a terminal: two for wide letters, none for combining marks.
std::size_t display_width(std::string_view text);
// Returns the longest beginning of `text` that fits into `columns`.
std::string_view first_columns(std::string_view text, std::size_t columns);

// Returns the largest offset <= `at` that is not inside a character of `text`; returns `at` itself if the text is not
// valid UTF-8 there.
std::size_t character_boundary(std::string_view text, std::size_t at);

// Returns the number of bytes at the end of `text` that start a character without completing it.
std::size_t unfinished_bytes(std::string_view text);

// Replaces every byte that is not part of a well-formed character with U+FFFD.
std::string repair_utf8(std::string_view text);

// Returns whether the character has Unicode's property White_Space.
constexpr bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

// Returns the size in bytes of the white-space character at the start of `text`; 0 if there is none. The four
// separators from 0x1c on are also white space, as in Python's str.split().
std::size_t leading_blank(std::string_view text);

// Removes trailing white space, as Python's str.rstrip() does.
std::string_view without_trailing_blanks(std::string_view text);

// Returns `text` without any of the characters `blanks` at either end.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

// Removes the first line of `text`, with its LF, and returns it without the LF.
std::string_view take_line(std::string_view& text);

// Converts an ASCII letter to lower case, independently of the locale; other bytes are unchanged.
constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
std::string lower_case(std::string_view text);

}  // namespace headroom
