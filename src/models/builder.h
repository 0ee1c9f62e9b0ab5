// How every model begins to make its parameters.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include "headroom/config/model_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

inline nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters, std::uint64_t seed,
                                const at::TensorOptions& tensor_options) {
  return nn::Builder(parameters, at::make_generator<at::CPUGeneratorImpl>(seed), tensor_options,
                     {.rule = o.initialisation, .std = o.initialisation_std});
}

}  // namespace headroom::models
