// Views of tensors. In inference mode on the CPU they bypass torch's dispatcher, whose overhead exceeds the arithmetic
// of a few rows; otherwise they are torch's operators.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace headroom::ops {

// t.reshape(sizes); one size may be -1.
at::Tensor reshaped(const at::Tensor& t, at::SymIntArrayRef sizes);

// t.transpose(a, b); the axes must not be negative.
at::Tensor transposed(const at::Tensor& t, std::int64_t a, std::int64_t b);

// t.narrow(axis, first, count), which must lie within t; the axis must not be negative.
at::Tensor narrowed(const at::Tensor& t, std::int64_t axis, std::int64_t first, std::int64_t count);

}  // namespace headroom::ops
