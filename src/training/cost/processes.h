// A training step in several processes: who looks after which tensor, what each process holds, and what it sends, from
// the config alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::cost {

// Tensors begin at a multiple of so many numbers in what is sent.
inline constexpr std::int64_t kTensorAlignment = 16;
// Parts of a tensor begin at a multiple of so many numbers: those of which the gradient norm takes the squares
// together, so that its bits do not depend on the parts.
inline constexpr std::int64_t kPieceUnit = std::int64_t{1} << 15;

// Numbers that are sent together at most: fewer where many processes send at a time.
inline constexpr std::int64_t bucket_numbers(std::int64_t processes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20, kOnTheirWay = std::int64_t{1} << 23;
  return std::clamp(kOnTheirWay / processes / kTensorAlignment * kTensorAlignment, kTensorAlignment, kMost);
}

// Bytes that a process takes before it holds any tensor: libraries, allocators' buffers, parts of the token file.
inline constexpr std::int64_t kProgramBytes = std::int64_t{176} << 20;

inline constexpr std::int64_t aligned(std::int64_t numbers) {
  return (numbers + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// Numbers [begin, end) of a tensor, and the process that looks after them: adds up their gradients, keeps their
// moments, moves them.
struct Piece {
  std::size_t tensor = 0;
  std::int64_t begin = 0, end = 0;
  int owner = 0;
  std::int64_t count() const { return end - begin; }
};

struct SharedTensor {
  std::int64_t numbers = 0;
  bool by_number = true;  // is moved so, and may be cut
};

// All numbers of these tensors, in their order: the largest piece first, each to the process that has least so far.
// A piece is a whole tensor, unless several processes share it and it is moved by_number: then one of more than a 32nd
// of the mean share is cut into pieces of at most that, or of kPieceUnit.
std::vector<Piece> share_out(const std::vector<SharedTensor>& tensors, int processes);

// One of N processes, with P numbers of all parameters, s of its own share and k of the step's K sums of gradients.
struct ProcessCost {
  std::int64_t numbers = 0;  // s
  std::int64_t sums = 0;     // k

  // Bytes of memory: parameters and gradients are whole in every process, 4 P each; moments of the share; where K > N
  // the sums so far, 4 s; staging, places for two buckets of every process on another machine, as if all others were: 8
  // (N - 1) bucket_numbers(N), which is less than 64 MiB; activations of a micro-batch, and what is carried of the rows
  // that the process computes.
  std::int64_t parameters = 0, gradients = 0, moments = 0, running_sums = 0, staging = 0, activations = 0;
  // With the program itself and room for what is temporary: two gradients of the largest tensor.
  std::int64_t total = 0;

  // Bytes a step: gradients, 4 k (P - s) out and 4 (K - k) s in; moved parameters, 4 (N - 1) s out and 4 (P - s) in.
  std::int64_t gradients_sent = 0, gradients_received = 0, parameters_sent = 0, parameters_received = 0;

  double macs = 0.0;  // of the step
};

struct ProcessesCost {
  std::int64_t sums = 1, rounds = 1;  // K (as many as processes, where the config has fewer) and K / N, rounded up
  std::vector<ProcessCost> all;

  double imbalance() const;            // the largest share by their mean
  const ProcessCost& largest() const;  // needs most memory
  // Bytes that a process sends or receives in a step, the most of all, by the 8 P (N - 1) / N of an all-reduce that
  // adds in any order what each process had added up by itself. 1 for one process.
  double of_all_reduce() const;
  // Bytes a second, each way, at which gradients are on their way for no longer than the backward passes take (two
  // thirds of the MACs) on devices that carry out so many MACs a second.
  double hiding_bandwidth(double macs_per_second) const;
};

// Throws UserError for fewer than 1 process or more than 65536, for a batch that they cannot share, and when a count
// does not fit 63 bits.
ProcessesCost processes_cost(const config::Config& config, std::int64_t processes);

}  // namespace headroom::cost
