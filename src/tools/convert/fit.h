// Fits one layer to the output of the source's.
#pragma once

#include <cstdint>
#include <functional>

#include "activations.h"

namespace headroom::convert {

// The output of a converted layer on the inputs of these activations.
using LayerOutput = std::function<at::Tensor(const LayerActivations&)>;

struct FitOptions {
  std::int64_t steps = 300;
  std::int64_t sequences = 1;   // a step
  double learning_rate = 6e-3;  // after 5 steps of warm-up, then linearly to 0
  std::uint64_t seed = 1;       // order of the sequences
};

// Runs AdamW on the parameters in place, with gradients clipped to a norm of 1. add_gradients() is called once a step
// and adds the gradients of the step's loss to the parameters' (by backward()).
void descend(const std::vector<at::Tensor>& parameters, const FitOptions& options,
             const std::function<void()>& add_gradients);

// The values of parameters at one moment.
class SavedValues {
 public:
  explicit SavedValues(const std::vector<at::Tensor>& parameters);
  void restore() const;

 private:
  std::vector<at::Tensor> parameters_, values_;
};

struct FitErrors {
  double start = 0.0, fitted = 0.0;  // on `held_out`, relative to sum y^2
};

// Minimises |output(x) - y|^2 / |y|^2 by AdamW over `parameters`, which are changed in place. Where the error on
// `held_out` has not become smaller, the starting values are restored.
FitErrors fit(const LayerOutput& output, const std::vector<at::Tensor>& parameters, const LayerActivations& activations,
              const LayerActivations& held_out, const FitOptions& options);

// The squared error of the layer on these activations, relative to sum y^2.
double relative_error(const LayerOutput& output, const LayerActivations& activations);

}  // namespace headroom::convert
