// Cuts token files into batches, in a deterministic order that continues exactly from a saved position.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "token_file.h"

namespace headroom::data {

// Position in a source of batches: all that a checkpoint needs to continue.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // batches of this epoch already returned
  bool operator==(const DataPosition&) const = default;
};

// Base of all sources of training batches: endless epochs of `per_epoch` batches. A batch depends on the position
// alone.
class EpochStream {
 public:
  std::int64_t per_epoch() const { return per_epoch_; }
  // Of the next batch; after the last batch of an epoch, the start of the next epoch.
  DataPosition position() const { return position_; }
  // Throws UserError, naming the data, if `position` is out of range.
  void seek(DataPosition position);

 protected:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();  // batches in a single epoch

  explicit EpochStream(std::string name) : name_(std::move(name)) {}
  void set_per_epoch(std::int64_t batches) { per_epoch_ = batches; }
  const std::string& name() const { return name_; }
  // Returns the current position and moves to the next batch.
  DataPosition advance();

 private:
  std::string name_;  // of the data, for messages
  std::int64_t per_epoch_ = 0;
  DataPosition position_;
};

struct BatchShape {
  std::int64_t batch = 1, length = 1;
};

// [batch, length+1] ids, row-major: inputs are columns 0..length-1, targets columns 1..length.
struct TokenBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> tokens;
  bool resets_memory = false;              // no row continues the previous batch: carried memory must be discarded
  std::vector<std::int32_t> corpora = {};  // of a mixture: the index of each row's file; empty for a single file
};

class TokenBatches : public EpochStream {
 public:
  virtual ~TokenBatches() = default;
  TokenBatch next();

 protected:
  using Files = std::vector<std::shared_ptr<const TokenFile>>;
  TokenBatches(std::string name, Files files, BatchShape shape)
      : EpochStream(std::move(name)), files_(std::move(files)), shape_(shape) {}

  // Where a row of the batch at `position` begins.
  struct Place {
    std::size_t file = 0;
    std::int64_t begin = 0;  // token
  };
  virtual Place place_of(DataPosition position, std::int64_t row) const = 0;
  virtual bool resets_memory(DataPosition position) const = 0;

  Files files_;
  BatchShape shape_;
};

// streams: the file is cut into `batch` contiguous streams of equal length; batch p holds chunk p of each, so that row
// b continues row b of the previous batch (its first input is the last target there). Memory resets at a new epoch.
// chunks: parts of length+1 tokens that start `length` tokens apart, shuffled from `seed` in every epoch. Memory always
// resets.
// Tokens left over at the end of the file, less than a batch, are not used. Throws UserError naming context_length and
// batch_size if the file holds less than one batch.
std::unique_ptr<TokenBatches> make_batches(const std::shared_ptr<const TokenFile>& file, BatchShape shape,
                                           config::Batching batching, std::uint64_t seed);

struct Mixture {
  std::vector<std::shared_ptr<const TokenFile>> files;
  std::vector<double> weights;  // positive, one per file
};
// Batches whose rows come from several files in proportion to the weights, whatever the file sizes; an exhausted file
// starts again. There is a single endless epoch.
// streams: each row belongs to one file permanently, with the number of rows of a file as close to its weight as
// possible; each file is cut into that many streams, and a stream starts again at its own beginning. Memory resets at
// the first batch only.
// chunks: each file gets its exact share of every 65536 rows, in an order shuffled from `seed`; a file's chunks are
// shuffled again on every pass. Memory always resets.
// Throws UserError naming the weight or the file if a file would get no row or is too short for its rows.
std::unique_ptr<TokenBatches> mix_batches(const Mixture& mixture, BatchShape shape, config::Batching batching,
                                          std::uint64_t seed);

// Splits `rows` in proportion to the weights: rounded down, the remaining rows to the largest fractions, ties to the
// first.
std::vector<std::int64_t> shares_of(const std::vector<double>& weights, std::int64_t rows);

struct EvaluationShape {
  std::int64_t batch = 1, length = 1;  // maximum number of parallel streams, tokens per chunk
  // Chunks that every stream but the first reads before its own, to fill the memory of the model as one long stream
  // would. 0: chunks are independent.
  std::int64_t warming = 0;
  std::int64_t most_predictions = 0;  // use only the start of the file with this many predictions; 0: all of it
};

// Inputs and targets [batch, length], row-major. A target below 0 does not count; inputs are always valid ids. Rows
// continue those of the previous batch; the last rows may be missing once their streams have ended.
struct EvaluationBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> inputs, targets;
  bool resets_memory = false;
  std::int64_t valid = 0;  // targets that count, at least 1
};

// One pass over a file: every token but the first is predicted exactly once, from the inputs of its own chunk (chunks
// begin at multiples of `length`) and, through memory, of the `warming` chunks before it. The results do not depend on
// the number of streams, except for rounding. Uses fewer streams than asked for if warming up would exceed a fifth of
// the work.
class EvaluationPass {
 public:
  EvaluationPass(std::shared_ptr<const TokenFile> file, EvaluationShape shape);
  bool next(EvaluationBatch& batch);  // false at the end
  std::int64_t batches() const { return steps_; }

 private:
  std::shared_ptr<const TokenFile> file_;
  EvaluationShape shape_;
  std::int64_t predictions_ = 0;
  std::int64_t steps_ = 0;  // chunks per stream, warming included
  std::int64_t step_ = 0;   // chunks already returned
};

}  // namespace headroom::data
