// Tables with one row per position, shared by all layers of a process.
#pragma once

#include <ATen/ATen.h>

#include "headroom/config/part_options.h"

namespace headroom::nn {

// Returns [n, count] float64: angle c of position i is i * base^(-2c/width), for n positions from `first`.
at::Tensor angles(const c10::SymInt& first, const c10::SymInt& n, std::int64_t count, std::int64_t width, double base);

struct PositionTable {
  // Returns [K, n, c] in float64; each row must depend only on its position and the table's other members.
  at::Tensor (*make)(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table);
  std::int64_t width;
  double base;
  config::RopeScalingOptions scaling = {};
};

// Returns rows [K, n, c] in the type and on the device of `options`; read-only. The table is cached for the process and
// extended when needed. `traced`: the caller is being traced, and its tensors must not be cached.
at::Tensor rows_of(const PositionTable& table, const c10::SymInt& first, const c10::SymInt& n,
                   const at::TensorOptions& options, bool traced);

}  // namespace headroom::nn
