// How every model begins to make its parameters.
#pragma once

#include "headroom/config/model_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

inline nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters,
                                const nn::Beginning& beginning) {
  return nn::Builder(parameters, beginning, {.rule = o.initialisation, .std = o.initialisation_std});
}

}  // namespace headroom::models
