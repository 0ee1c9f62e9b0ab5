// "local:global", as window_pattern spells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::config::detail {

struct WindowPattern {
  std::int64_t local = 1, global = 0;  // layers of a period: one local, the global ones, the other local ones
};

// Nothing when the text is not two small numbers, or both are 0.
std::optional<WindowPattern> parse_window_pattern(std::string_view text);

}  // namespace headroom::config::detail
