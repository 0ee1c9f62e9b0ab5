// Dropout without a stored mask: whether an element stays is a function of the seed and its place in the batch.
//   y = keep(seed, row, place in the row) f(x) / (1 - p),   f(x) = x or max(x, 0)
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct DropoutOptions {
  double p = 0.0;          // in [0, 1)
  std::uint64_t seed = 0;  // the same seed drops the same places
  bool relu = false;       // then the result is all that the derivative needs
  // Place of x[0] in the batch: the first axis counts its rows, so that a part of a batch drops what the whole drops.
  std::int64_t first_row = 0;
};

// x of any shape; differentiable. The fused version takes float32 and bfloat16 on the CPU; elsewhere `automatic` takes
// the reference, which drops the same elements, and `fused` throws UserError. Throws Error for p outside [0, 1).
at::Tensor dropout(const at::Tensor& x, const DropoutOptions& options,
                   Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
