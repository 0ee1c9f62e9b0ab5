// A pseudo-random permutation of 0..n-1 with random access, in constant memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "foundation/core/random.h"

namespace headroom::data {

// A Feistel network permutes the 2k-bit integers. Results outside 0..n-1 are permuted again until they fall inside
// (cycle walking), which yields a permutation of 0..n-1.
class Shuffle {
 public:
  Shuffle(std::uint64_t n, std::uint64_t seed)
      : n_(n), seed_(seed), half_bits_(std::max(kFewestBits, static_cast<int>(std::bit_width(n) + 1) / 2)) {}

  std::uint64_t operator()(std::uint64_t place) const {
    do {
      place = permuted(place);
    } while (place >= n_);
    return place;
  }

 private:
  static constexpr int kFewestBits = 4;  // bits per half; smaller halves mix poorly

  std::uint64_t permuted(std::uint64_t x) const {
    constexpr std::uint64_t kRounds = 8;
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (mix(mix(seed_, round), right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t n_, seed_;
  int half_bits_;
};

}  // namespace headroom::data
