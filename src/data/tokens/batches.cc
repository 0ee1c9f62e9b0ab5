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

// Batches of a single file, cut into `per_epoch` batches.
class FileBatches : public TokenBatches {
 protected:
  FileBatches(const std::shared_ptr<const TokenFile>& file, BatchShape shape, std::int64_t per_epoch)
      : TokenBatches(file->name(), {file}, shape) {
    set_per_epoch(per_epoch);
    if (per_epoch < 1) {
      user_error(
          "{}: holds {} tokens, too few for a batch of train.batch_size {} and model.context_length {}, which needs "
          "more than {}",
          file->name(), file->size(), shape.batch, shape.length,
          static_cast<double>(shape.batch) * static_cast<double>(shape.length));
    }
  }

  std::int64_t size() const { return files_.front()->size(); }
};

class Streams : public FileBatches {
 public:
  Streams(const std::shared_ptr<const TokenFile>& file, BatchShape shape)
      : FileBatches(file, shape, (file->size() / shape.batch - 1) / shape.length) {}

 private:
  bool resets_memory(DataPosition position) const override { return position.step == 0; }
  Place place_of(DataPosition position, std::int64_t row) const override {
    return {.begin = row * (size() / shape_.batch) + position.step * shape_.length};
  }
};

class Chunks : public FileBatches {
 public:
  Chunks(const std::shared_ptr<const TokenFile>& file, BatchShape shape, std::uint64_t seed)
      : FileBatches(file, shape, (file->size() - 1) / shape.length / shape.batch),
        chunks_(static_cast<std::uint64_t>((file->size() - 1) / shape.length)),
        seed_(seed) {}

 private:
  bool resets_memory(DataPosition /*position*/) const override { return true; }
  Place place_of(DataPosition position, std::int64_t row) const override {
    const Shuffle order(chunks_, mix(seed_, static_cast<std::uint64_t>(position.epoch)));
    const auto place = static_cast<std::uint64_t>(position.step * shape_.batch + row);
    return {.begin = static_cast<std::int64_t>(order(place)) * shape_.length};
  }

  std::uint64_t chunks_, seed_;
};

}  // namespace

void EpochStream::seek(DataPosition position) {
  const bool endless = per_epoch_ == kEndless;
  if (position.epoch < 0 || position.step < 0 || position.step >= per_epoch_ || (endless && position.epoch > 0)) {
    user_error("{}: has {}, so there is no epoch {}, step {}", name_,
               endless ? "a single endless epoch" : fmt::format("{} batches an epoch", per_epoch_), position.epoch,
               position.step);
  }
  position_ = position;
}

DataPosition EpochStream::advance() {
  const DataPosition before = position_;
  if (++position_.step == per_epoch_) {
    position_ = {.epoch = position_.epoch + 1, .step = 0};
  }
  return before;
}

TokenBatch TokenBatches::next() {
  const DataPosition position = advance();
  TokenBatch batch{
      .batch = shape_.batch, .length = shape_.length, .tokens = {}, .resets_memory = resets_memory(position)};
  const std::int64_t width = shape_.length + 1;
  batch.tokens.resize(static_cast<std::size_t>(shape_.batch * width));
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const Place place = place_of(position, row);
    files_[place.file]->copy(place.begin, width, batch.tokens.data() + row * width);
    if (per_epoch() == kEndless) {
      batch.corpora.push_back(static_cast<std::int32_t>(place.file));
    }
  }
  return batch;
}

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
  constexpr std::int64_t kShare = 4;  // minimum number of counted chunks per warming chunk
  check_shape({shape.batch, shape.length});
  predictions_ = file_->size() - 1;
  if (shape.most_predictions > 0) {
    predictions_ = std::min(predictions_, shape.most_predictions);
  }
  const std::int64_t chunks = predictions_ / shape.length + (predictions_ % shape.length > 0 ? 1 : 0);
  const std::int64_t most = shape.warming > 0 ? 1 + chunks / (kShare * shape.warming) : chunks;
  shape_.batch = std::clamp<std::int64_t>(std::min(shape.batch, most), 1, std::max<std::int64_t>(chunks, 1));
  // The first stream needs no warming: it reads `warming` more chunks of its own instead.
  steps_ = (chunks + (shape_.batch - 1) * shape.warming + shape_.batch - 1) / shape_.batch;
}

bool EvaluationPass::next(EvaluationBatch& batch) {
  if (step_ >= steps_) {
    return false;
  }
  const auto first_of = [&](std::int64_t row) { return (row * (steps_ - shape_.warming) + step_) * shape_.length; };
  batch.batch = shape_.batch;
  while (first_of(batch.batch - 1) >= predictions_) {  // the last streams may have ended
    --batch.batch;
  }
  batch.length = std::min(shape_.length, predictions_ - first_of(0));
  batch.resets_memory = step_ == 0 || shape_.warming == 0;
  batch.inputs.assign(static_cast<std::size_t>(batch.batch * batch.length), 0);
  batch.targets.assign(batch.inputs.size(), -1);
  batch.valid = 0;
  batch.chunks.clear();
  batch.counted.assign(static_cast<std::size_t>(batch.batch), 0);
  for (std::int64_t row = 0; row < batch.batch; ++row) {
    const std::int64_t first = first_of(row), count = std::min(batch.length, predictions_ - first);
    file_->copy(first, count, batch.inputs.data() + row * batch.length);
    batch.chunks.push_back(first / shape_.length);
    if (row == 0 || step_ >= shape_.warming) {
      file_->copy(first + 1, count, batch.targets.data() + row * batch.length);
      batch.counted[static_cast<std::size_t>(row)] = count;
      batch.valid += count;
    }
  }
  ++step_;
  return true;
}

}  // namespace headroom::data
