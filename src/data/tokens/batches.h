// Cuts token files into batches, in a deterministic order that continues exactly from a saved position.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "token_file.h"

namespace headroom::data {

// A position in a stream of batches: all the state that a checkpoint needs to continue.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // number of batches of this epoch already returned
  bool operator==(const DataPosition&) const = default;
};

// Base class of all streams of training batches: endless epochs of `per_epoch` batches each. A batch is a function of
// its position alone.
class EpochStream {
 public:
  std::int64_t per_epoch() const { return per_epoch_; }
  // Returns the position of the next batch. After the last batch of an epoch, this is the start of the next epoch.
  DataPosition position() const { return position_; }
  // Throws UserError, naming the data, if `position` is out of range.
  void seek(DataPosition position);

 protected:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();  // batches in a single epoch

  explicit EpochStream(std::string name) : name_(std::move(name)) {}
  void set_per_epoch(std::int64_t batches) { per_epoch_ = batches; }
  const std::string& name() const { return name_; }
  // Returns the current position and advances to the next batch.
  DataPosition advance();

 private:
  std::string name_;  // name of the data, for messages
  std::int64_t per_epoch_ = 0;
  DataPosition position_;
};

struct BatchShape {
  std::int64_t batch = 1, length = 1;
};

// Token ids [batch, length+1], row-major. Inputs are columns 0..length-1, targets are columns 1..length.
struct TokenBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> tokens;
  bool resets_memory = false;              // no row continues the previous batch: carried memory must be discarded
  std::vector<std::int32_t> corpora = {};  // mixture: index of each row's file; a single file: empty
};

class TokenBatches : public EpochStream {
 public:
  virtual ~TokenBatches() = default;
  TokenBatch next();

 protected:
  using Files = std::vector<std::shared_ptr<const TokenFile>>;
  TokenBatches(std::string name, Files files, BatchShape shape)
      : EpochStream(std::move(name)), files_(std::move(files)), shape_(shape) {}

  // The start of a row of the batch at `position`.
  struct Place {
    std::size_t file = 0;
    std::int64_t begin = 0;  // token
  };
  virtual Place place_of(DataPosition position, std::int64_t row) const = 0;
  virtual bool resets_memory(DataPosition position) const = 0;

  Files files_;
  BatchShape shape_;
};

// Cuts a token file into batches.
//   streams: the file is cut into `batch` contiguous streams of equal length. Batch p holds chunk p of each stream, so
//   row b continues row b of the previous batch: its first input is the last target there. Memory resets at a new
//   epoch.
//   chunks: parts of length+1 tokens that start `length` tokens apart, shuffled from `seed` in every epoch. Memory
//   always resets.
// Tokens at the end of the file that do not fill a batch are dropped. Throws UserError naming context_length and
// batch_size if the file is too short for one batch.
std::unique_ptr<TokenBatches> make_batches(const std::shared_ptr<const TokenFile>& file, BatchShape shape,
                                           config::Batching batching, std::uint64_t seed);

struct Mixture {
  std::vector<std::shared_ptr<const TokenFile>> files;
  std::vector<double> weights;  // positive, one per file
};
// Returns batches whose rows come from several files in proportion to the weights, regardless of file sizes. A file
// that is exhausted starts again. There is a single endless epoch.
//   streams: each row belongs to one file permanently, and the number of rows per file is as close to its weight as
//   possible. Each file is cut into as many streams as it has rows, and a stream that ends starts again at its own
//   beginning. Memory resets at the first batch only.
//   chunks: each file gets its exact share of every 65536 rows, in an order shuffled from `seed`. A file's chunks are
//   reshuffled on every pass. Memory always resets.
// Throws UserError naming the weight or the file if a file would get no row or is too short for its rows.
std::unique_ptr<TokenBatches> mix_batches(const Mixture& mixture, BatchShape shape, config::Batching batching,
                                          std::uint64_t seed);

// Splits `rows` in proportion to the weights. Shares are rounded down; the remaining rows go to the largest fractions,
// ties to the first weight.
std::vector<std::int64_t> shares_of(const std::vector<double>& weights, std::int64_t rows);

struct EvaluationShape {
  std::int64_t batch = 1, length = 1;  // maximum number of parallel streams; tokens per chunk
  // Number of chunks that every stream but the first reads before its own chunks, to fill the model's memory as a
  // single long stream would. 0: chunks are independent.
  std::int64_t warming = 0;
  std::int64_t most_predictions = 0;  // maximum number of predictions; 0: no limit
};

// Inputs and targets [batch, length], row-major. Negative targets are ignored; inputs are always valid ids. Rows
// continue the rows of the previous batch. The last rows are absent once their streams have ended.
struct EvaluationBatch {
  std::int64_t batch = 0, length = 0;
  std::vector<std::int32_t> inputs, targets;
  bool resets_memory = false;
  std::int64_t valid = 0;  // number of targets that count; 0 if all rows are warming
  // By row: the index of the chunk in the file, and the number of its targets that count, 0 while warming.
  std::vector<std::int64_t> chunks, counted;
};

// One pass over a file. Every token but the first is predicted exactly once, from the inputs of its own chunk and,
// through memory, from the `warming` chunks before it. Chunks begin at multiples of `length`. Results do not depend on
// the number of streams, up to rounding. Uses fewer streams than requested if warming up would exceed a fifth of the
// work.
// With a limit, the pass predicts only as many tokens, each from the same inputs, in pieces of whole chunks that are
// spread evenly over the file (spread_ranges(); the last chunk is shortened to meet the limit). There are 64 pieces, or
// one per chunk if there are fewer chunks, whatever the number of streams. With memory, there are fewer if warming up
// would exceed half of the work, but at least 8.
class EvaluationPass {
 public:
  EvaluationPass(std::shared_ptr<const TokenFile> file, EvaluationShape shape);
  bool next(EvaluationBatch& batch);  // false at the end
  std::int64_t batches() const { return batches_; }
  std::int64_t chunks() const;  // total number of chunks that are read, warming included

 private:
  // The text that one row reads, in predictions: [begin, end). Predictions from `counted` on count.
  struct Stream {
    std::int64_t begin = 0, counted = 0, end = 0;
    std::int64_t size() const { return end - begin; }
  };
  static std::vector<Stream> whole(std::int64_t predictions, const EvaluationShape& shape);
  static std::vector<Stream> part(std::int64_t predictions, const EvaluationShape& shape);
  // The streams that are read in parallel from `first` on, the longest first.
  std::span<const Stream> group(std::size_t first) const;

  std::shared_ptr<const TokenFile> file_;
  EvaluationShape shape_;
  std::vector<Stream> streams_;
  std::int64_t batches_ = 0;
  std::size_t first_ = 0;  // first stream of the group that is being read
  std::int64_t step_ = 0;  // number of chunks of each of its streams already returned
};

}  // namespace headroom::data
