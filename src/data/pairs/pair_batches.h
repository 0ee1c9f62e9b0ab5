// Batches of sentence pairs of similar lengths, in a deterministic order that continues exactly from a saved position.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tokens/batches.h"
#include "pairs.h"

namespace headroom::data {

struct BatchLimits {
  std::int64_t rows = 1;
  std::int64_t tokens = 0;    // maximum of rows x length of the longest row; 0: no limit
  std::int64_t multiple = 1;  // the number of rows is a multiple of this
};

// Returns the end of the batch that starts at `begin`, for `count` sentences in ascending order of length. length(i)
// includes the end token. A batch has at least `multiple` rows, regardless of the other limits.
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
  std::int64_t rows = 1;      // maximum per batch
  std::int64_t multiple = 1;  // the number of rows is a multiple of this (the number of micro-batches)
  std::int64_t tokens = 0;    // maximum of rows x the longer side of the longest pair; 0: no limit
  std::int64_t longest = 1;   // pairs with a longer side (in tokens, with the end token) are skipped
  std::uint64_t seed = 0;
};

// Batches of pairs of similar length. Pairs are sorted by the length of their longer side, including the end token, and
// cut into batches as large as the limits allow. Every epoch shuffles the pairs of equal length, and the batches. Each
// epoch leaves out up to multiple-1 of the longest pairs, different ones each time. The order is computed on demand,
// not stored.
class PairBatches : public EpochStream {
 public:
  // Throws UserError, naming the file's identity, if the file has too few pairs for one batch.
  PairBatches(const PairFile& file, const PairBatchOptions& options);
  std::vector<std::int64_t> next();                    // indices of pairs in the file
  std::int64_t too_long() const { return too_long_; }  // number of pairs skipped

 private:
  std::vector<std::int64_t> order_;   // pairs sorted by length, then by index
  std::vector<std::int64_t> starts_;  // where each length starts in order_
  std::vector<std::int64_t> cuts_;    // start of each batch in order_, then the end of the last one
  std::int64_t too_long_ = 0;
  std::uint64_t seed_;
};

}  // namespace headroom::data
