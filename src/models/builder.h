// How every model begins to make its parameters.
#pragma once

#include <cmath>
#include <cstdint>

#include "headroom/config/model_options.h"
#include "headroom/nn/linear.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

inline nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters,
                                const nn::Beginning& beginning) {
  return nn::Builder(parameters, beginning,
                     {.rule = o.initialisation, .std = o.initialisation_std, .embedding_std = o.embedding_std});
}

// A product that is initialised as torch's: both parts uniform within 1 / sqrt(in).
inline nn::Linear::Options uniform_linear(std::int64_t in, std::int64_t out, bool bias = true) {
  const nn::Start start = nn::Start::uniform(1.0 / std::sqrt(static_cast<double>(in)));
  return {.in = in, .out = out, .start = start, .bias_start = start, .bias = bias};
}

}  // namespace headroom::models
