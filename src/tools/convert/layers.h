// Which layers of the source a conversion converts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/models/model.h"

namespace headroom::convert {

using Layers = std::vector<bool>;  // by layer: whether it is converted

// Returns the source's config with the attention and MLP of `all` in the converted layers: `all` itself if these are
// all layers, else with an entry of model.layers for each run of equal layers.
config::Config mixed_config(const config::Config& source, const config::Config& all, const Layers& converted);

// Returns a model of that config: layers of `all` where converted, everything else of the source.
std::unique_ptr<models::Model> mixed_model(const config::Config& config, const models::Model& source,
                                           const models::Model& all, const Layers& converted);

struct LayerLoss {
  std::int64_t layer = 0;
  double added = 0.0;  // nats that converting this layer alone adds
};
// Chooses layers by their measured losses, cheapest first, until the next would raise the loss of all chosen together
// by more than `budget` nats. `loss`: of a model with these layers converted. `measured` receives every layer's own
// loss.
Layers choose_layers(std::int64_t n_layers, double budget, const std::function<double(const Layers&)>& loss,
                     std::vector<LayerLoss>& measured);

}  // namespace headroom::convert
