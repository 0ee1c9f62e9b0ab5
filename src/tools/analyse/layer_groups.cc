#include "layer_groups.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "headroom/config/config.h"

namespace headroom::analyse {
namespace {

bool have_alike_attention(const config::ModelOptions& a, const config::ModelOptions& b) {
  const std::vector<std::string> keys = config::differing_keys(a, b);
  return std::ranges::none_of(
      keys, [](const std::string& key) { return key.starts_with("model.attention.") && !config::sets_range(key); });
}

bool have_alike_routers(const config::MlpOptions& a, const config::MlpOptions& b) {
  const auto experts = [](const config::MlpOptions& mlp) {
    return mlp.kind == config::MlpKind::experts ? mlp.n_experts : 0;
  };
  return experts(a) == experts(b);
}

std::string name_of(const LayerGroup& group) {
  return fmt::format("layer{} {}", group.layers.size() == 1 ? "" : "s", fmt::join(group.layers, ", "));
}

}  // namespace

std::vector<LayerGroup> layer_groups(const config::ModelOptions& o) {
  const std::int64_t n = std::max(o.n_layers, o.decoder_layers());
  std::vector<LayerGroup> groups;
  bool alike = true;
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const config::ModelOptions own = o.of_layer(layer);
    alike = alike && (groups.empty() || have_alike_attention(groups.front().options, own));
    const auto group = std::ranges::find_if(groups, [&](const LayerGroup& other) {
      return have_alike_attention(other.options, own) && have_alike_routers(other.options.mlp, own.mlp);
    });
    if (group == groups.end()) {
      groups.push_back({.layers = {layer}, .options = own});
    } else {
      group->layers.push_back(layer);
    }
  }
  if (!alike) {
    return groups;
  }
  LayerGroup all{.layers = {}, .options = o};
  for (std::int64_t layer = 0; layer < n; ++layer) {
    all.layers.push_back(layer);
  }
  all.options.attention = groups.front().options.attention;
  all.options.attention.window = o.attention.window;
  all.options.attention.window_pattern = o.attention.window_pattern;
  return {std::move(all)};
}

Findings joined(std::vector<std::pair<const LayerGroup*, Findings>> groups) {
  if (groups.size() == 1) {
    return std::move(groups.front().second);
  }
  Findings all;
  for (auto& [group, findings] : groups) {
    const std::string name = name_of(*group);
    all.metrics[name] = std::move(findings.metrics);
    all.tensors.merge(findings.tensors);
    for (Figure& figure : findings.figures) {
      figure.caption += fmt::format(" ({})", name);
      all.figures.push_back(std::move(figure));
    }
    all.summary += fmt::format("{}{}: {}", all.summary.empty() ? "" : "; ", name, findings.summary);
  }
  return all;
}

}  // namespace headroom::analyse
