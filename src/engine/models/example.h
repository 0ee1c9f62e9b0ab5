// Random content for batches: the same numbers for a seed on every device.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>

namespace headroom::models {

// Whole numbers in [0, below), int64.
inline at::Tensor random_ids(std::int64_t below, at::IntArrayRef shape, std::uint64_t seed) {
  return at::randint(below, shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions(at::kLong));
}

}  // namespace headroom::models
