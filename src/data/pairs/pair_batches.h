// Sentence pairs in batches of about equal lengths, in an order that a saved position continues exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/tokens/batches.h"
#include "pairs.h"

namespace headroom::data {

// What a batch holds at most, and always `multiple` rows.
struct BatchLimits {
  std::int64_t rows = 1;
  std::int64_t tokens = 0;    // rows times the longest; 0: any
  std::int64_t multiple = 1;  // rows come in multiples of this
};

// The end of the batch that begins with `begin` of `count` sentences whose lengths, with their ends, ascend: length(i)
// of the i-th.
template <class Length>
std::int64_t batch_end(std::int64_t begin, std::int64_t count, const BatchLimits& limits, const Length& length) {
  std::int64_t end = begin + limits.multiple;
  for (std::int64_t more = end + limits.multiple;
       more <= count && more - begin <= limits.rows &&
       (limits.tokens == 0 || (more - begin) * length(more - 1) <= limits.tokens);
       more += limits.multiple) {
    end = more;
  }
  return end;
}

struct PairBatchOptions {
  std::int64_t rows = 1;      // of a batch at most
  std::int64_t multiple = 1;  // rows come in multiples of this (micro-batches)
  std::int64_t tokens = 0;    // rows times the longer side of the longest pair, at most; 0: any
  std::int64_t longest = 1;   // pairs with a side of more tokens are left out
  std::uint64_t seed = 0;
};

// Pairs are sorted by the length of their longer side, an end token included, and cut into batches as large as
// possible; in every epoch pairs of one length are shuffled again, and the batches come in another order. Fewer pairs
// than `multiple` are left over, another part of the longest in each epoch. Nothing of an epoch is kept: any place of
// it is computed when it is asked for.
class PairBatches {
 public:
  // Throws UserError naming the file's identity when it holds less than one batch.
  PairBatches(const PairFile& file, const PairBatchOptions& options);

  std::vector<std::int64_t> next();  // pairs of the file; endless
  std::int64_t per_epoch() const { return static_cast<std::int64_t>(cuts_.size()) - 1; }
  std::int64_t too_long() const { return too_long_; }  // pairs left out
  DataPosition position() const { return position_; }
  void seek(DataPosition position);  // throws UserError when out of range

 private:
  std::vector<std::int64_t> order_;   // pairs by length, then by place in the file
  std::vector<std::int64_t> starts_;  // of each length in order_
  std::vector<std::int64_t> cuts_;    // where batches begin in the sorted order; the last: the end
  std::int64_t too_long_ = 0;
  std::uint64_t seed_;
  DataPosition position_;
};

}  // namespace headroom::data
