// What tokens contribute to the maps between heads, computed from the tokens (DCMHA, Eq. 6-8).
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// Added under the root that the first of each pair of factors is divided by.
inline constexpr double kFactorEpsilon = 1e-6;

// How one side, queries or keys, computes its factors in the stages that there are, all of which have the same parts.
//
// Letters: N tokens, d d_model, H heads in C groups of m, R rank, I numbers between the two products (2 R m in DCMHA).
struct HeadMapWeights {
  std::vector<at::Tensor> w1;    // a stage each, [C, d, I]; none: no low-rank map
  std::vector<at::Tensor> w2;    // [C, I, 2, R, m], as many as w1
  std::vector<at::Tensor> gate;  // [d, H]; none: no gate
  bool tanh_gelu = false;        // between w1 and w2: GELU by its tanh approximation instead of the error function
};

// x [N, d] to [N, F], the stages side by side, of each what HeadMapSide::factors (head_map.h) holds of one token. With
// f = gelu(x w1) w2 in each group, u_r = f_0r / sqrt(mean over m of f_0r^2 + 1e-6) and w_r = f_1r; the gate is tanh(x
// gate). Differentiable in x and all weights, which have one dtype, the result's; x is converted to it.
//
// `implementation` is that of the products of x with the weights of all stages at once, and decides what linear()
// (linear.h) takes. In decoding, where at most 16 rows need no gradient, another implementation that reads the weights
// where they lie is taken instead (CPU, float32 or bfloat16), unless the reference is asked for. Throws Error on shapes
// that do not fit.
at::Tensor head_map_factors(const at::Tensor& x, const HeadMapWeights& weights,
                            Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
