// Token files cut into batches, in an order that a saved position continues exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/config/run_options.h"
#include "token_file.h"

namespace headroom::data {

// [batch, length+1] ids, row-major: inputs are columns 0..length-1, targets columns 1..length.
struct TokenBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> tokens;
  bool starts_afresh = false;  // no row continues the previous batch's: any carried memory must be discarded
  std::vector<std::int32_t> corpora = {};  // of a mixture: which file a row is from, counted from 0; empty: one file
};

// The position of a source of batches: all that a checkpoint needs to continue.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // batches of this epoch already handed out
  bool operator==(const DataPosition&) const = default;
};

struct BatchShape {
  std::int64_t batch = 1, length = 1;
};

class TokenBatches {
 public:
  virtual ~TokenBatches() = default;
  virtual TokenBatch next() = 0;  // endless: starts the next epoch by itself
  virtual std::int64_t per_epoch() const = 0;
  // After an epoch's last batch: the beginning of the next epoch.
  virtual DataPosition position() const = 0;
  virtual void seek(DataPosition position) = 0;  // throws UserError when out of range
};

// streams: the file is cut into `batch` contiguous streams of equal length; batch p holds chunk p of each, so row b
// of one batch continues row b of the one before (its first input is the target that ended it); starts_afresh marks a
// new epoch.
// chunks: pieces of length+1 tokens that begin `length` tokens apart, shuffled again every epoch from `seed`; always
// starts_afresh.
// What is left over at the end of the file, less than a batch, is not used. Throws UserError when the file holds
// less than one batch, naming context_length and batch_size.
std::unique_ptr<TokenBatches> make_batches(const std::shared_ptr<const TokenFile>& file, BatchShape shape,
                                           config::Batching batching, std::uint64_t seed);

// Batches whose rows come from several files, in shares of about these weights, whatever their sizes: a file that is
// used up begins again by itself. Epochs have no end.
// streams: a row belongs to one file for good, as many rows to each as come closest to its weight, and each file is cut
// into so many streams; so a row's memory is always of what stands before it there, and after its stream's end it goes
// on at that stream's beginning. starts_afresh marks the first batch alone.
// chunks: of every 65536 rows in turn a file has its share exactly, in an order shuffled from `seed`; a file's chunks
// are shuffled again each time that it was read. Always starts_afresh.
// Throws UserError naming the weight, or the file, where a file would have no row or is too short for its rows.
struct Mixture {
  std::vector<std::shared_ptr<const TokenFile>> files;
  std::vector<double> weights;  // above 0, one for each file
};
std::unique_ptr<TokenBatches> mix_batches(const Mixture& mixture, BatchShape shape, config::Batching batching,
                                          std::uint64_t seed);

// How many of `rows` each weight has: the closest shares, of equally close ones the first.
std::vector<std::int64_t> shares_of(const std::vector<double>& weights, std::int64_t rows);

struct EvaluationShape {
  std::int64_t batch = 1, length = 1;  // most streams read side by side, tokens of a chunk
  // Chunks that each stream but the first reads before its own: what a model with memory must have seen for its results
  // to be those of one long stream. 0: chunks do not see each other.
  std::int64_t warming = 0;
  std::int64_t most_predictions = 0;  // the beginning of the file that holds so many; 0: all of it
};

// A batch of an evaluation: inputs and targets [batch, length], row-major. A target below 0 does not count; an input is
// always a token. Rows continue those of the batch before; the last of them may be missing, their streams being at
// their end.
struct EvaluationBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> inputs, targets;
  bool starts_afresh = false;
  std::int64_t valid = 0;  // targets that count, at least 1
};

// One pass over a file: every token but the first predicted exactly once, each from the inputs of its own chunk of the
// file (chunks begin at multiples of `length`) and, through memory, of the `warming` chunks before it. So the results
// do not depend on the number of streams, apart from rounding. There are fewer streams than asked for where warming up
// would be more than a fifth of the work.
class EvaluationPass {
 public:
  EvaluationPass(std::shared_ptr<const TokenFile> file, EvaluationShape shape);
  bool next(EvaluationBatch& batch);  // false at the end
  std::int64_t batches() const { return steps_; }

 private:
  std::shared_ptr<const TokenFile> file_;
  EvaluationShape shape_;
  std::int64_t predictions_ = 0;  // in all
  std::int64_t steps_ = 0;        // chunks that each stream reads, those before its own included
  std::int64_t step_ = 0;         // already handed out
};

}  // namespace headroom::data
