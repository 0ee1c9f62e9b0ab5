// What separates words.
#pragma once

#include <cstddef>
#include <string_view>

namespace headroom {

// Unicode's White_Space.
constexpr bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

// Bytes of the blank that the text begins with, as Python's str.split() sees it: white space and the four separators
// from 0x1c on; 0: none.
std::size_t leading_blank(std::string_view text);

// Python's rstrip().
std::string_view without_trailing_blanks(std::string_view text);

// Without these at either end.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");

}  // namespace headroom
