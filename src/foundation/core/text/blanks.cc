#include "blanks.h"

#include <algorithm>

#include "utf8.h"

namespace headroom {

std::size_t leading_blank(std::string_view text) {
  constexpr char32_t kFirstSeparator = 0x1c, kLastSeparator = 0x1f;
  const CodePoint first = text.empty() ? CodePoint() : first_code_point(text);
  const bool separates = first.code >= kFirstSeparator && first.code <= kLastSeparator;
  return is_white_space(first.code) || separates ? first.size : 0;
}

std::string_view without_trailing_blanks(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = character_boundary(text, text.size() - 1);
    if (leading_blank(text.substr(last)) != text.size() - last) {
      break;
    }
    text = text.substr(0, last);
  }
  return text;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace headroom
