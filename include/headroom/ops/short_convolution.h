// A causal depthwise convolution over the last few tokens, followed by SiLU: the short convolution of linear attention.
//
// Letters: B batch, G heads, T tokens, e channels of a head, c taps.
//   y_t = silu(sum over j < c of w_j x_{t-c+1+j})   elementwise
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct ShortConvolutionInputs {
  at::Tensor x;                    // [B, G, T, e]
  at::Tensor w;                    // [G, e, c]
  std::optional<at::Tensor> past;  // [B, G, c - 1, e] the inputs before the first token; default: 0. Not differentiated
};

// Returns [B, G, T, e] in x's dtype, differentiable in x and w; sums are in float32 or wider. Throws Error if shapes do
// not match.
at::Tensor short_convolution(const ShortConvolutionInputs& inputs,
                             Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
