// Fits one attention layer to the output of the source's.
#pragma once

#include <cstdint>

#include "activations.h"
#include "headroom/nn/attention.h"

namespace headroom::convert {

struct FitOptions {
  std::int64_t steps = 300;
  std::int64_t sequences = 1;   // per step
  double learning_rate = 6e-3;  // after 5 steps of warm-up, then linearly to 0
  std::uint64_t seed = 1;       // order of the sequences
};

struct FitErrors {
  double start = 0.0, fitted = 0.0;  // on `held_out`, relative to sum y^2
};

// Minimises |attention(x) - y|^2 / |y|^2 by AdamW over `parameters`, which are changed in place. Restores the starting
// values if the error on `held_out` does not decrease.
FitErrors fit(const nn::Attention& attention, const std::vector<at::Tensor>& parameters,
              const LayerActivations& activations, const LayerActivations& held_out, const FitOptions& options);

// Returns the squared error of the layer on these activations, relative to sum y^2.
double relative_error(const nn::Attention& attention, const LayerActivations& activations);

}  // namespace headroom::convert
