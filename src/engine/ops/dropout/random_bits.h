// Counter-based random bits: a hash of a seed, a row of the batch and the index in the row. The bits are the same on
// every device, for any number of threads and for any part of the batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace headroom::ops {

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
