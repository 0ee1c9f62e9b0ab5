// Which examples of a data set are read: the order of training, and the part that an evaluation reads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "batches.h"
#include "foundation/core/random.h"

namespace headroom::data {

// A pseudo-random permutation of 0..n-1 with random access, in constant memory. A Feistel network permutes the 2k-bit
// integers. Results outside 0..n-1 are permuted again until they fall inside (cycle walking), which yields a
// permutation of 0..n-1.
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

struct OrderOptions {
  std::int64_t examples = 0, batch = 1;
  std::uint64_t seed = 0;
  // Returns the length of an example. If set, examples of similar length share a batch, which reduces padding.
  std::function<std::int64_t(std::int64_t)> length;
};

// Every epoch has its own order. With lengths, the examples of kPool consecutive batches are sorted by length and cut
// into batches, and the batches are shuffled. An incomplete batch at the end of an epoch is dropped.
class ExampleOrder : public EpochStream {
 public:
  static constexpr std::int64_t kPool = 32;

  // `what` names the data set in messages. Throws UserError if it has fewer examples than one batch needs.
  ExampleOrder(OrderOptions options, std::string what);
  std::vector<std::int64_t> next();  // the examples of the next batch

 private:
  void fill();
  OrderOptions options_;
  DataPosition filled_ = {.epoch = -1, .step = 0};  // position of the first batch in pool_
  std::vector<std::int64_t> pool_;                  // examples, batch by batch
};

// Selects the part of a data set that an evaluation reads if it does not read everything: units (chunks, rows,
// examples, pairs) spread evenly over the data, so that the mean over the part is close to the mean over the whole. The
// selection depends only on the sizes, so it is the same at every step, on every machine and for any number of ranks.

// Units [begin, end).
struct UnitRange {
  std::int64_t begin = 0, end = 0;
};

// Returns `ranges` disjoint ranges, ascending, with `count` of `size` units in total. Their lengths differ by at most
// one unit, and so do the gaps between them; half a gap remains at each end. 1 <= ranges <= count <= size.
std::vector<UnitRange> spread_ranges(std::int64_t size, std::int64_t count, std::int64_t ranges);

// Returns evenly spread units of [0, size), ascending, whose costs add up to at most `most`, but at least one unit; all
// units if `most` is 0 or not exceeded by the total cost. Costs are positive.
std::vector<std::int64_t> spread_units(std::int64_t size, std::int64_t most,
                                       const std::function<std::int64_t(std::int64_t unit)>& cost);

}  // namespace headroom::data
