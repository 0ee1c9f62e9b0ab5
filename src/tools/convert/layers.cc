#include "layers.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace headroom::convert {

config::Config mixed_config(const config::Config& source, const config::Config& all, const Layers& converted) {
  if (std::ranges::all_of(converted, [](bool is) { return is; })) {
    return all;
  }
  config::Config mixed = source;
  config::ModelOptions& model = mixed.model;
  model.attention.window_pattern = config::AttentionOptions().window_pattern;
  for (std::size_t i = 0; i < converted.size(); ++i) {
    const config::ModelOptions& of = converted[i] ? all.model : source.model;
    config::LayerOptions entry;
    entry.attention = config::differing_keys(of.of_layer(static_cast<std::int64_t>(i)).attention, model.attention);
    if (!model.layers.empty() && model.layers.back().attention == entry.attention) {
      ++model.layers.back().repeat;
    } else {
      model.layers.push_back(std::move(entry));
    }
  }
  if (model.layers.size() == 1 && model.layers.front().attention.empty()) {
    model.layers.clear();
  }
  return mixed;
}

std::unique_ptr<models::Model> mixed_model(const config::Config& config, const models::Model& source,
                                           const models::Model& all, const Layers& converted) {
  const at::NoGradGuard guard;
  std::unique_ptr<models::Model> model = models::make_model(config.model, 1);
  for (nn::Parameter parameter : model->parameters().stored()) {
    bool is_converted = false;
    for (std::size_t i = 0; i < converted.size(); ++i) {
      is_converted |= converted[i] && parameter.name.starts_with(fmt::format("layer{}.attention.", i));
    }
    parameter.tensor.copy_((is_converted ? all : source).parameters().at(parameter.name));
  }
  return model;
}

Layers choose_layers(std::int64_t n_layers, double budget, const std::function<double(const Layers&)>& loss,
                     std::vector<LayerLoss>& measured) {
  Layers chosen(static_cast<std::size_t>(n_layers), false);
  const double before = loss(chosen);
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    Layers alone(chosen.size(), false);
    alone[static_cast<std::size_t>(layer)] = true;
    measured.push_back({.layer = layer, .added = loss(alone) - before});
  }
  std::vector<LayerLoss> cheapest = measured;
  std::ranges::stable_sort(cheapest, {}, &LayerLoss::added);
  for (const LayerLoss& next : cheapest) {
    Layers more = chosen;
    more[static_cast<std::size_t>(next.layer)] = true;
    if (loss(more) - before > budget) {
      break;
    }
    chosen = more;
  }
  return chosen;
}

}  // namespace headroom::convert
