// Groups of layers that an analysis can treat alike, in models whose layers differ (model.layers).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analyse.h"
#include "headroom/config/model_options.h"

namespace headroom::analyse {

struct LayerGroup {
  std::vector<std::int64_t> layers;  // their numbers, ascending
  config::ModelOptions options;      // `attention` is that of the layers, apart from windows and rotary bases
};

// Returns a single group with the model's own options if the attention layers differ in their windows and rotary bases
// at most. Otherwise the layers of a group have the same attention and the same kind of MLP.
std::vector<LayerGroup> layer_groups(const config::ModelOptions& options);

// Joins what an analysis found in each of several groups: metrics by group ("layers 0, 2"), and all tensors and
// figures.
Findings joined(std::vector<std::pair<const LayerGroup*, Findings>> groups);

}  // namespace headroom::analyse
