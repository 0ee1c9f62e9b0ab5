// A layer or model as Python names it: one string that says everything but the parameters' numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/parameters.h"

namespace headroom::python {

struct Layer {
  // attention, mlp, norm, block; model; embedding and head, a language model's two ends; ends, any model without blocks
  std::string kind;
  bool causal = true, cross = false;
  std::int64_t index = 0;  // which layer of a model: its window
  config::ModelOptions model;

  nn::AttentionPlace place() const;
  // Of a model, or of its ends: those of a model with no layers.
  config::ModelOptions built() const;
};

// What describe_layer() made, parsed once. Throws UserError for anything else.
const Layer& layer_of(const std::string& text);

// A layer's string: the options of a TOML file or recipe (`source`; "": the defaults) with `settings`
// ("model.n_layers=2") on top, checked as those of a TOML file are. `layer` has the rest. Throws UserError, beginning
// with `origin`.
std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin);

// The same of a layer whose model is known and checked.
std::string describe(const Layer& layer);

// Makes the layer's parameters and nothing else.
void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::Beginning& beginning);

}  // namespace headroom::python
