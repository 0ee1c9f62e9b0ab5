// Letters of ASCII, whatever the locale; all other bytes stay as they are.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace headroom {

constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return lower_case(c); });
  return lower;
}

}  // namespace headroom
