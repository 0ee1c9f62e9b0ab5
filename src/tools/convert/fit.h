// Fits one layer to the output of the source's layer, and all layers together to the source's predictions.
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
  std::int64_t sequences = 1;   // per step
  double learning_rate = 6e-3;  // after 5 steps of warm-up, then linearly to 0
  std::uint64_t seed = 1;       // order of the sequences
};

// Minimises |output(x) - y|^2 / |y|^2 by AdamW over `parameters`, which are changed in place. Returns the errors on
// `held_out`, relative to sum y^2. Restores the starting values if the error has not decreased.
FitErrors fit(const LayerOutput& output, const std::vector<at::Tensor>& parameters, const LayerActivations& activations,
              const LayerActivations& held_out, const FitOptions& options);

// Solves (gram + penalty) w = cross in float64. The penalty is 1e-3 times the mean of gram's diagonal; with `constant`,
// the last feature is a constant and not penalised.
at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool constant = false);

// For models that train::can_teach(): minimises the divergence from the source's predictions by AdamW over `parameters`
// of `model`, which are changed in place; gradients of all other parameters are disabled. Returns the divergences on
// the held-out tokens. Restores the starting values if the divergence has not decreased.
FitErrors fit_together(const models::Model& source, const models::Model& model,
                       const std::vector<at::Tensor>& parameters, const Batches& batches, const FitOptions& options);

// Values and outputs of a few heads that together approximate the output of all heads of a layer, and keys that several
// heads share, in closed form.

// y is approximated by sum_h z_h values[h] outputs[h] + bias, with z_h as in HeadSums.
struct ValueFit {
  std::vector<std::int64_t> heads;  // of the source, ascending
  at::Tensor values;                // [heads, d, r] float64
  at::Tensor outputs;               // [heads, r, d]
  at::Tensor bias;                  // [d]; 0 without `with_bias`
  double error = 0.0;               // sum of squared errors / sum y^2
};

// Fits values of rank r for the given heads: first the least-squares map M of z_h (ridge 1e-3 of the mean square), then
// for each head the rank-r factors of C^(1/2) M_h with C the covariance of z_h, last all outputs jointly.
ValueFit fit_values(const HeadSums& sums, const std::vector<std::int64_t>& heads, std::int64_t rank, bool with_bias);

// Chooses the `count` heads with the least error: every pair for count = 2, greedily otherwise.
ValueFit choose_heads(const HeadSums& sums, std::int64_t count, std::int64_t rank, bool with_bias);

// Keys and values that several heads share, in closed form: for multi-head latent attention and routed heads.
//
// C is the covariance of the source tokens x, E[x^T x] [d, d], and all tensors are float64. "Whitened" means E =
// identity.

// C^(1/2) and its inverse.
struct Roots {
  explicit Roots(const at::Tensor& covariance);
  at::Tensor root, inverse;
};

// A matrix [d, n] approximated by down up. The r channels x down are whitened.
struct LowRank {
  at::Tensor down;  // [d, r]
  at::Tensor up;    // [r, n]
};
// The same product with orthonormal columns of `down`, for a layer that divides x down by its root mean square. `size`
// is the root mean square of x down over the tokens.
struct Normalised {
  LowRank factors;
  double size = 0.0;
};
Normalised with_orthonormal_columns(const LowRank& factors, const Roots& roots);

// Returns the factors with the least error over the tokens, where column i counts weights[i] times.
LowRank low_rank(const at::Tensor& matrix, const at::Tensor& weights, std::int64_t rank, const Roots& roots);

// Queries [d, H, c] and the keys [d, c] that all heads share.
struct SharedKeys {
  at::Tensor queries, keys;
};
// Rotary channels, in pairs (i, i + c/2). With queries and keys as complex numbers, each pair approximates k_h by a_h k
// and replaces q_h by q_h conj(a_h). k is the leading singular vector over the heads, weighted by the size of their
// queries. Rotations by position commute with this.
SharedKeys share_rotated(const at::Tensor& queries, const at::Tensor& keys, const Roots& roots);
// Channels without rotation: keeps the leading `rank` directions of all heads' keys.
SharedKeys share_plain(const at::Tensor& queries, const at::Tensor& keys, std::int64_t rank, const Roots& roots);

}  // namespace headroom::convert
