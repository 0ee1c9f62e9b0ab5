// Computes the memory and traffic of each rank.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/config/config.h"
#include "training/parallel/shards.h"

namespace headroom::cost {

// Memory of a rank in bytes without tensors: libraries, allocator buffers, mapped parts of the token file.
inline constexpr std::int64_t kProgramBytes = std::int64_t{176} << 20;
// The same of a Python process with torch.distributed.
inline constexpr std::int64_t kPythonBytes = std::int64_t{350} << 20;

// Cost of one of N ranks. P: elements in all parameters; s: elements in the shards that the rank owns; K: gradient
// accumulators per step, of which the rank computes k.
struct RankCost {
  std::int64_t elements = 0;      // s
  std::int64_t accumulators = 0;  // k

  // Bytes of memory. Each rank stores all parameters and gradients, 4 P each, but only the moments of its own shards.
  // running_sums: 4 s if K > N, else 0. staging: gradients that arrive, two buckets per peer: 8 (N - 1)
  // bucket_elements(N), less than 64 MiB. activations: one micro-batch, and the Transformer-XL memory of the rank's
  // rows.
  std::int64_t parameters = 0, gradients = 0, moments = 0, running_sums = 0, staging = 0, activations = 0;
  // Sum of the above, plus the program itself and two gradients of the largest tensor for temporaries.
  std::int64_t total = 0;

  // Bytes per step. Gradients: sends 4 k (P - s), receives 4 (K - k) s. Updated parameters: sends 4 (N - 1) s, receives
  // 4 (P - s).
  std::int64_t gradients_sent = 0, gradients_received = 0, parameters_sent = 0, parameters_received = 0;

  double macs = 0.0;  // per step
};

struct RanksCost {
  std::int64_t elements = 0;                  // P
  std::int64_t accumulators = 1, rounds = 1;  // K, at least N; K / N, rounded up
  std::vector<RankCost> all;                  // by rank

  double imbalance() const;         // maximum number of elements owned by a rank, over the mean
  const RankCost& largest() const;  // the rank that needs the most memory
  // Returns the maximum number of bytes that any rank sends or receives per step, divided by 8 P (N - 1) / N, the
  // traffic of an unordered all-reduce of locally accumulated gradients; 1 for a single rank.
  double of_all_reduce() const;
  // Returns the bandwidth, in bytes per second in each direction, at which sending gradients takes no longer than the
  // backward passes (two thirds of the MACs) on devices of this speed.
  double hiding_bandwidth(double macs_per_second) const;
};

// Throws UserError if the ranks, 1 or more, do not divide the batch evenly, and if a count does not fit 63 bits.
RanksCost ranks_cost(const config::Config& config, std::int64_t ranks);

// The same for headroom_torch.train, whose ranks store only their own s = P / N elements: 4 s each of parameters and
// gradients and 8 s of moments. K: micro-batches, of which each rank computes k = K / N. b: elements of a block, r: of
// everything outside of blocks. staging: r and two blocks with their gradients, gathered, 8 r + 16 b. total: with a
// Python process; gradients, staging and activations, or if that is more, the copy of 12 s from which a checkpoint is
// written. A rank gathers all elements for each forward pass and blocks again for each backward pass, and sends the
// gradients of all: parameters 4 k (N - 1) (2 P - r) / N, gradients 4 k (N - 1) s.
RanksCost sharded_cost(const config::Config& config, std::int64_t ranks);

}  // namespace headroom::cost
