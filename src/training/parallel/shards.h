// How a training step is divided among ranks: shards of parameters, gradient accumulators, messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "foundation/core/ceil_div.h"
#include "headroom/config/run_options.h"

namespace headroom::parallel {

// Alignment of tensors in the buffers that ranks exchange, in elements.
inline constexpr std::int64_t kTensorAlignment = 16;
// Alignment of shards within a tensor, in elements. A multiple of the blocks over which the gradient norm sums squares,
// so that the bits of the norm do not depend on the sharding.
inline constexpr std::int64_t kShardUnit = std::int64_t{1} << 15;

// Returns the maximum number of elements per message. It decreases with the number of ranks, because all ranks send at
// once.
inline constexpr std::int64_t bucket_elements(std::int64_t ranks) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20, kInTransit = std::int64_t{1} << 23;
  return std::clamp(kInTransit / ranks / kTensorAlignment * kTensorAlignment, kTensorAlignment, kMost);
}

inline constexpr std::int64_t aligned(std::int64_t elements) {
  return round_up(elements, kTensorAlignment);
}

// Elements [begin, end) of a tensor. The owner reduces their gradients, stores their moments and updates them.
struct Shard {
  std::size_t tensor = 0;
  std::int64_t begin = 0, end = 0;
  int owner = 0;
  std::int64_t count() const { return end - begin; }
};

struct ShardedTensor {
  std::int64_t elements = 0;
  bool elementwise = true;  // the optimizer updates it elementwise, so it may be cut
};

// Returns shards that cover all tensors, in order. Shards are assigned by size, largest first, each to the rank with
// the fewest elements so far. A shard is a whole tensor, except that with several ranks an elementwise tensor larger
// than 1/32 of the mean load is cut into shards of at most that size (or kShardUnit, if larger).
std::vector<Shard> assign_shards(const std::vector<ShardedTensor>& tensors, int ranks);

// Returns the number of gradient accumulators per step; each sums the same number of micro-batches.
std::int64_t accumulators_of(const config::TrainOptions& train);
// Raises train.accumulate or train.gradient_accumulators so that every rank has a gradient accumulator. Throws
// UserError if the batch cannot be divided among the ranks.
void raise_accumulators(config::TrainOptions& train, std::int64_t ranks);

}  // namespace headroom::parallel
