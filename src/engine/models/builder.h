// How every model begins to make its parameters.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

inline nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters,
                                const nn::Beginning& beginning) {
  nn::Initialisation initialisation{
      .rule = o.initialisation, .std = o.initialisation_std, .embedding_std = o.embedding_std};
  if (o.initialisation == config::Initialisation::pythia) {
    const auto d = static_cast<double>(o.d_model);
    initialisation.std = std::sqrt(2.0 / (5.0 * d));
    initialisation.stream_std = 2.0 / (static_cast<double>(o.n_layers) * std::sqrt(d));
  }
  return nn::Builder(parameters, beginning, initialisation);
}

// A product that is initialised as torch's: both parts uniform within 1 / sqrt(in).
inline nn::Linear::Options uniform_linear(std::int64_t in, std::int64_t out, bool bias = true) {
  const nn::Start start = nn::Start::uniform(1.0 / std::sqrt(static_cast<double>(in)));
  return {.in = in, .out = out, .start = start, .bias_start = start, .bias = bias};
}

}  // namespace headroom::models
