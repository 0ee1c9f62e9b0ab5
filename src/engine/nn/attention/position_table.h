// Tables with a row for each position that every layer of a model reads: made once in a process, and again where more
// positions are asked for.
#pragma once

#include <ATen/ATen.h>

namespace headroom::nn {

// [n, count]: position_i * base^(-2c/width) in float64, for exact tables at any length. Positions begin with `first`.
at::Tensor angles(const c10::SymInt& first, const c10::SymInt& n, std::int64_t count, std::int64_t width, double base);

struct PositionTable {
  // [K, n, c] in float64, each row of its position alone.
  at::Tensor (*make)(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base);
  std::int64_t width;
  double base;
};

// [K, n, c] in the type and on the device of `options`, to be read only. Made anew where the caller is traced: what is
// known belongs to another world.
at::Tensor rows_of(const PositionTable& table, const c10::SymInt& first, const c10::SymInt& n,
                   const at::TensorOptions& options, bool traced);

}  // namespace headroom::nn
