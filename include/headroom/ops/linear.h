// The dense product of a layer, forward and backward, each by the fastest library that torch brings.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// x [N, d_in], w [d_in, d_out] of any strides, b [d_out]; result [N, d_out]. Differentiable in all three. w and b
// have one dtype, which is the result's; x is converted to it, and kept unconverted for backward. The fused version
// takes float32 and bfloat16 on the CPU; elsewhere `automatic` takes the reference and `fused` throws UserError.
// Throws Error on shapes that do not fit.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b = std::nullopt,
                  Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
