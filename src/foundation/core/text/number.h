// Numbers as file names, metadata, tables and options spell them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

// The number that `text` is as a whole, as "0.1", "-3" and "1e-4" are; none where it is anything else.
template <class T = double>
std::optional<T> as_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// The same of a count, of at least 0.
inline std::optional<std::int64_t> whole_number(std::string_view text) {
  const auto number = as_number<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

}  // namespace headroom
