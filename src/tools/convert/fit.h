// Fits one attention layer to the source's: its parameters by AdamW; values and outputs of a few heads that together
// approximate the output of all heads, in closed form.
#pragma once

#include <cstdint>
#include <vector>

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

// y is approximated by sum_h z_h values[h] outputs[h] + bias, with z_h as in HeadSums.
struct ValueFit {
  std::vector<std::int64_t> heads;  // of the source, ascending
  at::Tensor values;                // [heads, d, r] float64
  at::Tensor outputs;               // [heads, r, d]
  at::Tensor bias;                  // [d]; 0 without `with_bias`
  double error = 0.0;               // sum of squared errors / sum y^2
};

// Fits values of rank r for the given heads. First the least-squares map M of z_h (ridge 1e-3 of the mean square), then
// for each head the rank-r factors of C^(1/2) M_h, C the covariance of z_h; finally all outputs jointly.
ValueFit fit_values(const HeadSums& sums, const std::vector<std::int64_t>& heads, std::int64_t rank, bool with_bias);

// Selects the `count` heads with the smallest error: every pair for count = 2, greedily otherwise.
ValueFit choose_heads(const HeadSums& sums, std::int64_t count, std::int64_t rank, bool with_bias);

}  // namespace headroom::convert
