// Token files cut into batches, in an order that a saved position continues exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/data/token_file.h"

namespace headroom::data {

// [batch, length+1] ids, row-major: inputs are columns 0..length-1, targets columns 1..length.
struct Batch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> tokens;
  bool starts_afresh = false;  // no row continues the previous batch's: any carried memory must be forgotten
  std::int64_t valid = 0;      // predictions that count; fewer than batch*length only in an evaluation's last batch
};

// Where a source of batches stands: all that a checkpoint needs to go on.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // batches of this epoch already handed out
  bool operator==(const DataPosition&) const = default;
};

struct BatchShape {
  std::int64_t batch = 1, length = 1;
};

class Batches {
 public:
  virtual ~Batches() = default;
  virtual Batch next() = 0;  // endless: starts the next epoch by itself
  virtual std::int64_t per_epoch() const = 0;
  // After an epoch's last batch: the beginning of the next epoch.
  virtual DataPosition position() const = 0;
  virtual void seek(DataPosition position) = 0;  // throws MisuseError when out of range
};

// streams: the file is cut into `batch` contiguous streams of equal length; batch p holds chunk p of each, so row b
// of one batch continues row b of the one before (its first input is the target that ended it); starts_afresh marks a
// new epoch.
// chunks: pieces of length+1 tokens that begin `length` tokens apart, shuffled anew every epoch from `seed`; always
// starts_afresh.
// What is left over at the end of the file, less than a batch, is not used. Throws MisuseError when the file holds
// less than one batch, naming context_length and batch_size.
std::unique_ptr<Batches> make_batches(std::shared_ptr<const TokenFile> file, BatchShape shape,
                                      config::Batching batching, std::uint64_t seed);

// One pass over a file for evaluation: contiguous streams, every token but the first of each stream predicted exactly
// once. Streams differ by one token at most; there are `shape.batch` of them, or fewer where each could not hold
// length+1 tokens.
class EvaluationPass {
 public:
  EvaluationPass(std::shared_ptr<const TokenFile> file, BatchShape shape);
  // False at the end. The last batch may be shorter than the others: as long as the longest stream's rest. In the rows
  // of shorter streams its last target is then -1, which counts for nothing; an input is never -1.
  bool next(Batch& batch);
  std::int64_t batches() const;

 private:
  std::int64_t begin_of(std::int64_t stream) const;
  std::shared_ptr<const TokenFile> file_;
  BatchShape shape_;
  std::int64_t longest_ = 0;  // predictions in the longest stream
  std::int64_t at_ = 0;       // predictions already handed out, a stream
};

}  // namespace headroom::data
