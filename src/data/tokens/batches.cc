#include "batches.h"

#include <algorithm>

#include "headroom/core/error.h"
#include "shuffle.h"

namespace headroom::data {
namespace {

void check_shape(BatchShape shape) {
  if (shape.batch < 1 || shape.length < 1) {
    user_error("batches: train.batch_size and model.context_length must be at least 1, got {} and {}", shape.batch,
               shape.length);
  }
}

// What both orders share: counting batches and epochs, and rows copied from places in the file.
class FileBatches : public TokenBatches {
 public:
  FileBatches(std::shared_ptr<const TokenFile> file, BatchShape shape, std::int64_t per_epoch)
      : file_(std::move(file)), shape_(shape), per_epoch_(per_epoch) {
    if (per_epoch_ < 1) {
      user_error(
          "{}: holds {} tokens, too few for a batch of train.batch_size {} and model.context_length {}, which needs "
          "more than {}",
          file_->name(), file_->size(), shape.batch, shape.length,
          static_cast<double>(shape.batch) * static_cast<double>(shape.length));
    }
  }

  TokenBatch next() override {
    TokenBatch batch{
        .batch = shape_.batch, .length = shape_.length, .tokens = {}, .starts_afresh = starts_afresh(position_)};
    const std::int64_t width = shape_.length + 1;
    batch.tokens.resize(static_cast<std::size_t>(shape_.batch * width));
    for (std::int64_t row = 0; row < shape_.batch; ++row) {
      file_->copy(begin_of(position_, row), width, batch.tokens.data() + row * width);
    }
    if (++position_.step == per_epoch_) {
      position_ = {.epoch = position_.epoch + 1, .step = 0};
    }
    return batch;
  }

  std::int64_t per_epoch() const override { return per_epoch_; }
  DataPosition position() const override { return position_; }
  void seek(DataPosition position) override {
    if (position.epoch < 0 || position.step < 0 || position.step >= per_epoch_) {
      user_error("{}: has {} batches an epoch, so there is no epoch {}, step {}", file_->name(), per_epoch_,
                 position.epoch, position.step);
    }
    position_ = position;
  }

 protected:
  virtual bool starts_afresh(DataPosition position) const = 0;
  // The first token of a row.
  virtual std::int64_t begin_of(DataPosition position, std::int64_t row) const = 0;

  std::shared_ptr<const TokenFile> file_;
  BatchShape shape_;
  std::int64_t per_epoch_;

 private:
  DataPosition position_;
};

class Streams : public FileBatches {
 public:
  Streams(const std::shared_ptr<const TokenFile>& file, BatchShape shape)
      : FileBatches(file, shape, (file->size() / shape.batch - 1) / shape.length) {}

 private:
  bool starts_afresh(DataPosition position) const override { return position.step == 0; }
  std::int64_t begin_of(DataPosition position, std::int64_t row) const override {
    return row * (file_->size() / shape_.batch) + position.step * shape_.length;
  }
};

class Chunks : public FileBatches {
 public:
  Chunks(const std::shared_ptr<const TokenFile>& file, BatchShape shape, std::uint64_t seed)
      : FileBatches(file, shape, (file->size() - 1) / shape.length / shape.batch),
        chunks_(static_cast<std::uint64_t>((file->size() - 1) / shape.length)),
        seed_(seed) {}

 private:
  bool starts_afresh(DataPosition /*position*/) const override { return true; }
  std::int64_t begin_of(DataPosition position, std::int64_t row) const override {
    const Shuffle order(chunks_, mix(seed_, static_cast<std::uint64_t>(position.epoch)));
    const auto place = static_cast<std::uint64_t>(position.step * shape_.batch + row);
    return static_cast<std::int64_t>(order(place)) * shape_.length;
  }
  std::uint64_t chunks_, seed_;
};

}  // namespace

std::unique_ptr<TokenBatches> make_batches(const std::shared_ptr<const TokenFile>& file, BatchShape shape,
                                           config::Batching batching, std::uint64_t seed) {
  check_shape(shape);
  if (batching == config::Batching::chunks) {
    return std::make_unique<Chunks>(file, shape, seed);
  }
  return std::make_unique<Streams>(file, shape);
}

EvaluationPass::EvaluationPass(std::shared_ptr<const TokenFile> file, EvaluationShape shape)
    : file_(std::move(file)), shape_(shape) {
  constexpr std::int64_t kShare = 4;  // chunks that count for each one that only warms up, at least
  check_shape({shape.batch, shape.length});
  predictions_ = file_->size() - 1;
  if (shape.most_predictions > 0) {
    predictions_ = std::min(predictions_, shape.most_predictions);
  }
  const std::int64_t chunks = predictions_ / shape.length + (predictions_ % shape.length > 0 ? 1 : 0);
  const std::int64_t most = shape.warming > 0 ? 1 + chunks / (kShare * shape.warming) : chunks;
  shape_.batch = std::clamp<std::int64_t>(std::min(shape.batch, most), 1, std::max<std::int64_t>(chunks, 1));
  // The first stream has nothing to warm up for: it counts as many chunks more.
  steps_ = (chunks + (shape_.batch - 1) * shape.warming + shape_.batch - 1) / shape_.batch;
}

bool EvaluationPass::next(EvaluationBatch& batch) {
  if (step_ >= steps_) {
    return false;
  }
  const auto first_of = [&](std::int64_t row) { return (row * (steps_ - shape_.warming) + step_) * shape_.length; };
  batch.batch = shape_.batch;
  while (first_of(batch.batch - 1) >= predictions_) {  // the last streams may end before the others
    --batch.batch;
  }
  batch.length = std::min(shape_.length, predictions_ - first_of(0));
  batch.starts_afresh = step_ == 0 || shape_.warming == 0;
  batch.inputs.assign(static_cast<std::size_t>(batch.batch * batch.length), 0);
  batch.targets.assign(batch.inputs.size(), -1);
  batch.valid = 0;
  for (std::int64_t row = 0; row < batch.batch; ++row) {
    const std::int64_t first = first_of(row), count = std::min(batch.length, predictions_ - first);
    file_->copy(first, count, batch.inputs.data() + row * batch.length);
    if (row == 0 || step_ >= shape_.warming) {
      file_->copy(first + 1, count, batch.targets.data() + row * batch.length);
      batch.valid += count;
    }
  }
  ++step_;
  return true;
}

}  // namespace headroom::data
