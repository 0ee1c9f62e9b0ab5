// Elementwise steps of the decode path as single loops: for a few rows, calling torch's operators takes longer than the
// arithmetic. Each result has the same bits as the tensor operations that it replaces.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

namespace headroom::ops {

// Whether one loop may replace tensor operations on `t`: in inference mode, on the CPU, with values (has_values()).
bool suits_loop(const at::Tensor& t);
// Whether the functions below may read `t`: suits_loop(), float32 or bfloat16, contiguous rows.
bool suits_one_pass(const at::Tensor& t);

// x / sqrt(mean(x^2) + epsilon) * scale over the last axis, rounded to `type`. `x` and `scale` must be float32, `x`
// contiguous.
at::Tensor rms_norm_once(const at::Tensor& x, const at::Tensor& scale, double epsilon, at::ScalarType type);

// x + y, where x is float32, y is bfloat16, and both are contiguous and have the same shape.
at::Tensor add_once(const at::Tensor& x, const at::Tensor& y);

// Rotates the first 2 c channels of x [B, H, n, e] by cosines and sines, rows [2, m, c] float32: token i of sequence b
// uses row first[b] + i.
//   y_j = x_j cos_j - x_{j+c} sin_j,  y_{j+c} = x_{j+c} cos_j + x_j sin_j  for j < c
at::Tensor rotate_once(const at::Tensor& x, const at::Tensor& rotations, std::span<const std::int64_t> first);

}  // namespace headroom::ops
