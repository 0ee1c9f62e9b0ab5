// Steps of the decode path without torch's operators, whose overhead exceeds the arithmetic of a few rows: views, and
// elementwise steps as single loops. Each result has the same bits as the tensor operations that it replaces.
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

// In inference mode on the CPU, the three functions below bypass torch's dispatcher; otherwise they call torch's
// operators.

// t.reshape(sizes); one size may be -1.
at::Tensor reshaped(const at::Tensor& t, at::SymIntArrayRef sizes);

// t.transpose(a, b); the axes must not be negative.
at::Tensor transposed(const at::Tensor& t, std::int64_t a, std::int64_t b);

// t.narrow(axis, first, count), which must lie within t; the axis must not be negative.
at::Tensor narrowed(const at::Tensor& t, std::int64_t axis, std::int64_t first, std::int64_t count);

}  // namespace headroom::ops
