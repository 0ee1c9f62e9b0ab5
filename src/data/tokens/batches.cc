#include "batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "example_order.h"
#include "foundation/core/ceil_div.h"
#include "headroom/core/error.h"

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
  check_shape({shape.batch, shape.length});
  const std::int64_t predictions = file_->size() - 1;
  const bool limited = shape.most_predictions > 0 && shape.most_predictions < predictions;
  streams_ = limited ? part(predictions, shape) : whole(predictions, shape);
  std::ranges::stable_sort(streams_, std::ranges::greater(), &Stream::size);
  for (std::size_t first = 0; first < streams_.size(); first += group(first).size()) {
    batches_ += ceil_div(streams_[first].size(), shape.length);
  }
}

std::vector<EvaluationPass::Stream> EvaluationPass::whole(std::int64_t predictions, const EvaluationShape& shape) {
  constexpr std::int64_t kShare = 4;  // minimum number of counted chunks per warming chunk
  const std::int64_t chunks = ceil_div(predictions, shape.length), warming = shape.warming;
  const std::int64_t most = warming > 0 ? 1 + chunks / (kShare * warming) : chunks;
  const std::int64_t rows = std::clamp<std::int64_t>(std::min(shape.batch, most), 1, std::max<std::int64_t>(chunks, 1));
  // The first stream needs no warming and reads `warming` more chunks to predict instead.
  const std::int64_t steps = ceil_div(chunks + (rows - 1) * warming, rows);
  std::vector<Stream> streams;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row * (steps - warming);
    const Stream stream{.begin = first * shape.length,
                        .counted = (row == 0 ? 0 : first + warming) * shape.length,
                        .end = std::min(predictions, (first + steps) * shape.length)};
    if (stream.size() > 0) {
      streams.push_back(stream);
    }
  }
  return streams;
}

std::vector<EvaluationPass::Stream> EvaluationPass::part(std::int64_t predictions, const EvaluationShape& shape) {
  constexpr std::int64_t kPieces = 64, kFewest = 8;
  const std::int64_t chunks = ceil_div(predictions, shape.length), warming = shape.warming;
  const std::int64_t counted = ceil_div(shape.most_predictions, shape.length);
  const std::int64_t pieces = warming > 0 ? std::clamp(counted / warming, kFewest, kPieces) : kPieces;
  std::vector<Stream> streams;
  std::int64_t left = shape.most_predictions;
  for (const UnitRange& piece : spread_ranges(chunks, counted, std::min(pieces, counted))) {
    const std::int64_t begin = piece.begin * shape.length;
    const std::int64_t end = std::min({predictions, piece.end * shape.length, begin + left});
    streams.push_back(
        {.begin = std::max<std::int64_t>(0, begin - warming * shape.length), .counted = begin, .end = end});
    left -= end - begin;
  }
  return streams;
}

std::int64_t EvaluationPass::chunks() const {
  return std::accumulate(
      streams_.begin(), streams_.end(), std::int64_t{0},
      [&](std::int64_t sum, const Stream& stream) { return sum + ceil_div(stream.size(), shape_.length); });
}

std::span<const EvaluationPass::Stream> EvaluationPass::group(std::size_t first) const {
  return std::span(streams_).subspan(first, std::min(streams_.size() - first, static_cast<std::size_t>(shape_.batch)));
}

bool EvaluationPass::next(EvaluationBatch& batch) {
  if (first_ >= streams_.size()) {
    return false;
  }
  const std::span<const Stream> rows = group(first_);
  const std::int64_t read = step_ * shape_.length;  // of each stream
  batch.batch = std::ranges::count_if(rows, [&](const Stream& stream) { return stream.size() > read; });
  batch.length = std::min(shape_.length, rows.front().size() - read);
  batch.resets_memory = step_ == 0 || shape_.warming == 0;
  batch.inputs.assign(static_cast<std::size_t>(batch.batch * batch.length), 0);
  batch.targets.assign(batch.inputs.size(), -1);
  batch.valid = 0;
  batch.chunks.clear();
  batch.counted.assign(static_cast<std::size_t>(batch.batch), 0);
  for (std::int64_t row = 0; row < batch.batch; ++row) {
    const Stream& stream = rows[static_cast<std::size_t>(row)];
    const std::int64_t first = stream.begin + read, count = std::min(batch.length, stream.end - first);
    file_->copy(first, count, batch.inputs.data() + row * batch.length);
    batch.chunks.push_back(first / shape_.length);
    if (first >= stream.counted) {
      file_->copy(first + 1, count, batch.targets.data() + row * batch.length);
      batch.counted[static_cast<std::size_t>(row)] = count;
      batch.valid += count;
    }
  }
  ++step_;
  if (rows.front().size() <= step_ * shape_.length) {
    first_ += rows.size();
    step_ = 0;
  }
  return true;
}

namespace {

constexpr std::int64_t kDeal = 65536;  // rows of chunks per deal; in each deal every file gets its exact share

class MixedBatches : public TokenBatches {
 protected:
  // `deal` is the number of rows that are divided among the files at a time.
  MixedBatches(const Mixture& mixture, BatchShape shape, std::int64_t deal)
      : TokenBatches("data.mixture", mixture.files, shape), shares_(shares_of(mixture.weights, deal)) {
    set_per_epoch(kEndless);
    const bool of_a_batch = deal == shape.batch;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (shares_[i] == 0) {
        user_error("data.mixture: weight {} gives {} none of the {} rows{}{}", mixture.weights[i], files_[i]->name(),
                   deal, of_a_batch ? " of a batch" : "",
                   of_a_batch ? ": try a larger train.batch_size or, without memory, data.batching = \"chunks\"" : "");
      }
      first_.push_back(first);
      first += shares_[i];
    }
  }

  // Returns the file that supplies this row of the deal.
  std::size_t owner_of(std::int64_t dealt) const {
    std::size_t i = files_.size() - 1;
    while (first_[i] > dealt) {
      --i;
    }
    return i;
  }

  // Returns the number of chunks in each of `streams` streams of a file. Throws UserError if the file is too short.
  std::int64_t chunks_of(std::size_t file, std::int64_t streams) const {
    const std::int64_t chunks = (files_[file]->size() / streams - 1) / shape_.length;
    if (chunks < 1) {
      user_error("{}: holds {} tokens, too few for {} rows of model.context_length {} in each batch of the mixture",
                 files_[file]->name(), files_[file]->size(), streams, shape_.length);
    }
    return chunks;
  }

  std::vector<std::int64_t> shares_, first_;  // per file: its rows in a deal; rows of the files before it
};

class MixedStreams : public MixedBatches {
 public:
  MixedStreams(const Mixture& mixture, BatchShape shape) : MixedBatches(mixture, shape, shape.batch) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      chunks_of(i, shares_[i]);
    }
  }

 private:
  bool resets_memory(DataPosition position) const override { return position.step == 0; }
  Place place_of(DataPosition position, std::int64_t row) const override {
    const std::size_t i = owner_of(row);
    const std::int64_t stream = (row - first_[i]) * (files_[i]->size() / shares_[i]);
    return {.file = i, .begin = stream + position.step % chunks_of(i, shares_[i]) * shape_.length};
  }
};

class MixedChunks : public MixedBatches {
 public:
  MixedChunks(const Mixture& mixture, BatchShape shape, std::uint64_t seed)
      : MixedBatches(mixture, shape, kDeal), seed_(seed) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      chunks_of(i, 1);
    }
  }

 private:
  bool resets_memory(DataPosition /*position*/) const override { return true; }
  Place place_of(DataPosition position, std::int64_t row) const override {
    const std::int64_t number = position.step * shape_.batch + row, deal = number / kDeal;
    const Shuffle deals(static_cast<std::uint64_t>(kDeal), mix(seed_, static_cast<std::uint64_t>(deal)));
    const auto dealt = static_cast<std::int64_t>(deals(static_cast<std::uint64_t>(number % kDeal)));
    const std::size_t i = owner_of(dealt);
    const std::int64_t nth = deal * shares_[i] + dealt - first_[i], chunks = chunks_of(i, 1);
    const std::uint64_t own = mix(mix(seed_, static_cast<std::uint64_t>(i)), "corpus");
    const Shuffle order(static_cast<std::uint64_t>(chunks), mix(own, static_cast<std::uint64_t>(nth / chunks)));
    const auto chunk = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(nth % chunks)));
    return {.file = i, .begin = chunk * shape_.length};
  }

  std::uint64_t seed_;
};

}  // namespace

std::vector<std::int64_t> shares_of(const std::vector<double>& weights, std::int64_t rows) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares;
  std::vector<std::pair<double, std::size_t>> missing;  // negative row fraction (sorts the largest first), file
  for (const double weight : weights) {
    const double share = weight / sum * static_cast<double>(rows);
    shares.push_back(static_cast<std::int64_t>(share));
    missing.emplace_back(static_cast<double>(shares.back()) - share, missing.size());
  }
  std::ranges::sort(missing);
  std::int64_t left = rows - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; i = (i + 1) % missing.size(), --left) {
    ++shares[missing[i].second];
  }
  return shares;
}

std::unique_ptr<TokenBatches> mix_batches(const Mixture& mixture, BatchShape shape, config::Batching batching,
                                          std::uint64_t seed) {
  if (batching == config::Batching::chunks) {
    return std::make_unique<MixedChunks>(mixture, shape, seed);
  }
  return std::make_unique<MixedStreams>(mixture, shape);
}

}  // namespace headroom::data
