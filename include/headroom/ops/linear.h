// A dense linear layer, forward and backward, using the fastest matrix multiplication among torch's libraries.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// Returns x w + b [N, d_out] for x [N, d_in], w [d_in, d_out] of any strides and an optional b [d_out]. Differentiable
// in all three. w and b must have the same dtype, which is also the result's; x is converted to it, but saved
// unconverted for backward. The fused version supports float32 and bfloat16 on the CPU, and CUDA; otherwise `automatic`
// uses the reference and `fused` throws UserError. Throws Error if shapes do not match.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b = std::nullopt,
                  Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
