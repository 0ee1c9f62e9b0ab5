#include "windows.h"

#include "foundation/core/text/number.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::config {
namespace detail {

std::optional<WindowPattern> parse_window_pattern(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    const auto value = whole_number(digits);
    return value && *value <= 65536 ? value : std::nullopt;
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  const auto local = number(text.substr(0, colon)), global = number(text.substr(colon + 1));
  if (!local || !global || *local + *global == 0) {
    return std::nullopt;
  }
  return WindowPattern{.local = *local, .global = *global};
}

}  // namespace detail

std::vector<std::int64_t> layer_windows(const ModelOptions& model) {
  const auto pattern = detail::parse_window_pattern(model.attention.window_pattern);
  if (!pattern) {
    user_error("model.attention.window_pattern: must be local:global such as 1:1 or 3:1, got \"{}\"",
               model.attention.window_pattern);
  }
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    const std::int64_t place = layer % (pattern->local + pattern->global);
    const std::int64_t first_global = pattern->local > 0 ? 1 : 0;
    const bool global = place >= first_global && place < first_global + pattern->global;
    windows.push_back(global ? 0 : model.attention.window);
  }
  return windows;
}

}  // namespace headroom::config
