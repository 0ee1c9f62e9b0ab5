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
  std::string kind;  // attention, mlp, block; embedding and head, a language model's two ends; model
  bool causal = true, cross = false;
  std::int64_t index = 0;  // which layer of a model: its window
  config::ModelOptions model;

  nn::AttentionPlace place() const;
};

// What describe_layer() made, parsed once. Throws MisuseError for anything else.
const Layer& layer_of(const std::string& text);

// A layer's string: the options of a TOML file or recipe (`source`; "": the defaults) with `settings`
// ("model.n_layers=2") on top, checked as those of a TOML file are. `layer` has the rest. Throws MisuseError, beginning
// with `origin`.
std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin);

// The same of a whole model whose config is checked.
std::string describe_model(const config::Config& config);

// Makes the layer's parameters and nothing else.
void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::Beginning& beginning);

}  // namespace headroom::python
