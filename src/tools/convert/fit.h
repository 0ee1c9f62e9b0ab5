// Fits one layer to the output of the source's, and all layers together to its predictions.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "activations.h"
#include "headroom/models/model.h"

namespace headroom::convert {

// The output of a converted layer on the inputs of these activations.
using LayerOutput = std::function<at::Tensor(const LayerActivations&)>;

struct FitOptions {
  std::int64_t steps = 300;
  std::int64_t sequences = 1;   // a step
  double learning_rate = 6e-3;  // after 5 steps of warm-up, then linearly to 0
  std::uint64_t seed = 1;       // order of the sequences
};

// Minimises |output(x) - y|^2 / |y|^2 by AdamW over `parameters`, which are changed in place. Returns the errors on
// `held_out`, relative to sum y^2. Where the error has not become smaller, the starting values are restored.
FitErrors fit(const LayerOutput& output, const std::vector<at::Tensor>& parameters, const LayerActivations& activations,
              const LayerActivations& held_out, const FitOptions& options);

// Solves (gram + penalty) w = cross in float64, the penalty 1e-3 of the mean of gram's diagonal. `constant`: the last
// feature is a constant, which is not penalised.
at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool constant = false);

// For models that train::can_teach(): minimises the divergence from the source's predictions by AdamW over `parameters`
// of `model`, which are changed in place; gradients of all others are switched off. Returns the divergences on the
// held-out tokens. Where the divergence has not become smaller, the starting values are restored.
FitErrors fit_together(const models::Model& source, const models::Model& model,
                       const std::vector<at::Tensor>& parameters, const Batches& batches, const FitOptions& options);

}  // namespace headroom::convert
