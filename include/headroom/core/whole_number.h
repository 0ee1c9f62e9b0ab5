// Counts as file names, metadata and tables spell them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

// The number of at least 0 that `text` is as a whole; none where it is anything else.
inline std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

}  // namespace headroom
