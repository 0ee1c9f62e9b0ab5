// Random numbers by place: a hash of a seed, a row of the batch and the place in that row, the same on every device,
// for any number of threads and for any part of the batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace headroom::ops {

struct Places {
  std::uint64_t seed = 0;
  std::int64_t first_row = 0;  // in the batch
  std::int64_t rows = 1, per_row = 0;
};

// [rows, per_row] int64 with 32 random bits each: h(h(place + low) ^ high) of the row's seed (high, low), with h
// Wellons' "lowbias32". A row should have fewer than 2^32 places.
at::Tensor random_bits(const Places& places, at::Device device);

// The seed of one row. What the kernels take, too.
std::uint64_t row_seed(std::uint64_t seed, std::int64_t row);

}  // namespace headroom::ops
