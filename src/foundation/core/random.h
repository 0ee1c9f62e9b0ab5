// Counter-based random numbers: pure functions of a seed and a position, independent of earlier draws.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

// Mixes two 64-bit values into one (SplitMix64 finaliser). mix(seed, step) is the seed of one step: (seed, step) is the
// entire random state, so a resumed run draws the same numbers as an uninterrupted one.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Mixes a value with the FNV-1a hash of a name. Streams with different names are independent.
constexpr std::uint64_t mix(std::uint64_t a, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return mix(a, hash);
}

// A small generator (SplitMix64) for shuffling and sampling outside of tensors.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_, counter_++); }
  // Returns a uniform, unbiased integer in [0, n). Requires n > 0.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    std::uint64_t draw = next();
    while (draw >= limit) {
      draw = next();
    }
    return draw % n;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // in [0, 1)

 private:
  std::uint64_t state_, counter_ = 0;
};

}  // namespace headroom
