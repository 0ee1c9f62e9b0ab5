// Dropout without a stored mask: the mask is a hash of the seed and the element's position in the batch.
//   y = keep(seed, row, index in the row) f(x) / (1 - p),   f(x) = x or max(x, 0)
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct DropoutOptions {
  double p = 0.0;          // in [0, 1)
  std::uint64_t seed = 0;  // the same seed drops the same elements
  bool relu = false;       // apply max(x, 0) first; backward then needs only the result
  // Index of x[0] in the batch, whose rows are the first axis of x: a part of a batch then drops the same elements as
  // the whole batch.
  std::int64_t first_row = 0;
};

// Returns a tensor shaped like x, which may have any shape; differentiable. The fused version supports float32 and
// bfloat16 on the CPU; otherwise `automatic` uses the reference, which drops the same elements, and `fused` throws
// UserError. Throws Error for p outside [0, 1).
at::Tensor dropout(const at::Tensor& x, const DropoutOptions& options,
                   Implementation implementation = Implementation::automatic);

// Counter-based random bits: a hash of a seed, a row of the batch and the index in the row. The bits are the same on
// every device, for any number of threads and for any part of the batch.
struct Places {
  std::uint64_t seed = 0;
  std::int64_t first_row = 0;  // index in the batch
  std::int64_t rows = 1, per_row = 0;
};

// Returns [rows, per_row] int64 with 32 random bits each: h(h(index + low) ^ high), where (high, low) is the row's seed
// and h is Wellons' "lowbias32". A row should have fewer than 2^32 elements.
at::Tensor random_bits(const Places& places, at::Device device);

// Returns the seed of one row, which the dropout kernels use as well.
std::uint64_t row_seed(std::uint64_t seed, std::int64_t row);

}  // namespace headroom::ops
