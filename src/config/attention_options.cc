#include "headroom/config/attention_options.h"

#include <algorithm>

namespace headroom::config {

bool AttentionOptions::has_experts(char which) const {
  return projection == Projection::experts &&
         std::find(experts.begin(), experts.end(), std::string(1, which)) != experts.end();
}

bool AttentionOptions::selects_source() const {
  return has_experts('k') || has_experts('v');
}

bool AttentionOptions::selects_destination() const {
  return has_experts('q') || has_experts('o');
}

std::int64_t AttentionOptions::n_selections() const {
  const int sides = (selects_source() ? 1 : 0) + (selects_destination() ? 1 : 0);
  return shared_selection ? std::min(sides, 1) : sides;
}

bool AttentionOptions::composes(const std::string& stage) const {
  return composition != Composition::none && std::find(compose.begin(), compose.end(), stage) != compose.end();
}

std::int64_t AttentionOptions::rope_channels() const {
  // A fraction such as 0.1 is a little off: 0.1 * 30 must still give 3 channels.
  const auto channels = static_cast<std::int64_t>(rope_fraction * static_cast<double>(d_head) + 1e-9);
  return channels / 2 * 2;
}

}  // namespace headroom::config
