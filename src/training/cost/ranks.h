// Training with several ranks: which rank owns which shard of the parameters, and what each rank stores and sends,
// computed from the config alone. train (ranks/sharding.h) trains with the assignment made here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::cost {

// Tensors start at a multiple of this many elements in the buffers that ranks send.
inline constexpr std::int64_t kTensorAlignment = 16;
// Shards start at a multiple of this many elements, a whole number of the blocks over which the gradient norm sums
// squares, so that its bits do not depend on the shards.
inline constexpr std::int64_t kShardUnit = std::int64_t{1} << 15;

// The most elements of one message. It falls with the number of ranks, which send at the same time.
inline constexpr std::int64_t bucket_elements(std::int64_t ranks) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20, kInTransit = std::int64_t{1} << 23;
  return std::clamp(kInTransit / ranks / kTensorAlignment * kTensorAlignment, kTensorAlignment, kMost);
}

// Bytes of a process before it holds any tensor: libraries, allocators' buffers, parts of the token file.
inline constexpr std::int64_t kProgramBytes = std::int64_t{176} << 20;

inline constexpr std::int64_t aligned(std::int64_t elements) {
  return (elements + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// Elements [begin, end) of a tensor, and the rank that reduces their gradients, stores their moments and updates them.
struct Shard {
  std::size_t tensor = 0;
  std::int64_t begin = 0, end = 0;
  int owner = 0;
  std::int64_t count() const { return end - begin; }
};

struct ShardedTensor {
  std::int64_t elements = 0;
  bool elementwise = true;  // its optimizer works elementwise, so the tensor may be cut
};

// Shards that cover all tensors, in order. Shards are assigned by size, largest first, each to the rank with the fewest
// elements so far. A shard is a whole tensor, except that with several ranks an elementwise tensor larger than 1/32 of
// the mean load is cut into shards of at most that size, or of kShardUnit.
std::vector<Shard> assign_shards(const std::vector<ShardedTensor>& tensors, int ranks);

// One of N ranks. P: elements of all parameters; s: of its own shards; k: its share of the step's K accumulators.
struct RankCost {
  std::int64_t elements = 0;      // s
  std::int64_t accumulators = 0;  // k

  // Bytes of memory. Parameters and gradients are whole on every rank, 4 P each; moments are those of the own shards;
  // running_sums, 4 s, if K > N. staging: two buckets for each rank on another machine, as if all others were, which is
  // 8 (N - 1) bucket_elements(N), less than 64 MiB. activations: those of a micro-batch, and the Transformer-XL memory
  // of the rank's rows.
  std::int64_t parameters = 0, gradients = 0, moments = 0, running_sums = 0, staging = 0, activations = 0;
  // Also includes the program itself, and two gradients of the largest tensor as room for temporaries.
  std::int64_t total = 0;

  // Bytes a step: gradients, 4 k (P - s) out and 4 (K - k) s in; updated parameters, 4 (N - 1) s out, 4 (P - s) in.
  std::int64_t gradients_sent = 0, gradients_received = 0, parameters_sent = 0, parameters_received = 0;

  double macs = 0.0;  // of the step
};

struct RanksCost {
  std::int64_t accumulators = 1, rounds = 1;  // K, raised to N if the config has fewer; K / N, rounded up
  std::vector<RankCost> all;                  // by rank

  double imbalance() const;         // elements of the largest rank over their mean
  const RankCost& largest() const;  // needs the most memory
  // The most bytes that a rank sends or receives in a step, over the 8 P (N - 1) / N bytes of an unordered all-reduce
  // of gradients accumulated on each rank. 1 for a single rank.
  double of_all_reduce() const;
  // Bytes a second, each way, at which sending gradients takes no longer than the backward passes (two thirds of the
  // MACs) on devices of this speed.
  double hiding_bandwidth(double macs_per_second) const;
};

// Throws UserError for fewer than 1 or more than 65536 ranks, for a batch that they cannot divide evenly, and if a
// count does not fit 63 bits.
RanksCost ranks_cost(const config::Config& config, std::int64_t ranks);

}  // namespace headroom::cost
