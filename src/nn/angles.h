// The angles of rotary and sinusoidal positions.
#pragma once

#include <ATen/ATen.h>

namespace headroom::nn {

// [n, count]: position_i * base^(-2c/width) in float64, for exact tables at any length.
at::Tensor angles(const c10::SymInt& first, const c10::SymInt& n, std::int64_t count, std::int64_t width, double base);

}  // namespace headroom::nn
