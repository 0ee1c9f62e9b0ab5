// Rows from several files: which one is from which, and which part of it, follows from a row's number alone.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "batches.h"
#include "headroom/core/error.h"
#include "shuffle.h"

namespace headroom::data {
namespace {

// One of a mixture's files.
struct Corpus {
  std::shared_ptr<const TokenFile> file;
  std::int64_t share = 0, first = 0;  // of the rows that are dealt out together: how many, and those of files before it
};

class MixedBatches : public TokenBatches {
 public:
  MixedBatches(const Mixture& mixture, BatchShape shape, std::int64_t dealt) : shape_(shape) {
    const std::vector<std::int64_t> shares = shares_of(mixture.weights, dealt);
    const bool of_a_batch = dealt == shape.batch;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < mixture.files.size(); ++i) {
      if (shares[i] == 0) {
        user_error("data.mixture: of {} rows{} the weight {} gives {} none{}", dealt, of_a_batch ? " of a batch" : "",
                   mixture.weights[i], mixture.files[i]->name(),
                   of_a_batch ? ": try a larger train.batch_size or, without memory, data.batching = \"chunks\"" : "");
      }
      corpora_.push_back({.file = mixture.files[i], .share = shares[i], .first = first});
      first += shares[i];
    }
  }

  TokenBatch next() override {
    TokenBatch batch{.batch = shape_.batch, .length = shape_.length, .tokens = {}, .starts_afresh = starts_afresh()};
    const std::int64_t width = shape_.length + 1;
    batch.tokens.resize(static_cast<std::size_t>(shape_.batch * width));
    for (std::int64_t row = 0; row < shape_.batch; ++row) {
      const auto [corpus, begin] = place_of(row);
      corpora_[corpus].file->copy(begin, width, batch.tokens.data() + row * width);
      batch.corpora.push_back(static_cast<std::int32_t>(corpus));
    }
    ++step_;
    return batch;
  }

  std::int64_t per_epoch() const override { return std::numeric_limits<std::int64_t>::max(); }
  DataPosition position() const override { return {.epoch = 0, .step = step_}; }
  void seek(DataPosition position) override {
    if (position.epoch != 0 || position.step < 0) {
      user_error("data.mixture: has a single epoch without end, so there is no epoch {}, step {}", position.epoch,
                 position.step);
    }
    step_ = position.step;
  }

 protected:
  struct Place {
    std::size_t corpus;
    std::int64_t begin;  // its token
  };
  virtual bool starts_afresh() const = 0;
  virtual Place place_of(std::int64_t row) const = 0;

  // The corpus that has this one of the rows dealt out together.
  std::size_t owner_of(std::int64_t dealt) const {
    std::size_t i = corpora_.size() - 1;
    while (corpora_[i].first > dealt) {
      --i;
    }
    return i;
  }
  [[noreturn]] void refuse(const Corpus& corpus, std::int64_t rows) const {
    user_error("{}: holds {} tokens, too few for {} rows of model.context_length {} in each batch of the mixture",
               corpus.file->name(), corpus.file->size(), rows, shape_.length);
  }

  BatchShape shape_;
  std::vector<Corpus> corpora_;
  std::int64_t step_ = 0;
};

class MixedStreams : public MixedBatches {
 public:
  MixedStreams(const Mixture& mixture, BatchShape shape) : MixedBatches(mixture, shape, shape.batch) {
    for (const Corpus& corpus : corpora_) {
      if (chunks_of(corpus) < 1) {
        refuse(corpus, corpus.share);
      }
    }
  }

 private:
  // Of each of its streams.
  std::int64_t chunks_of(const Corpus& corpus) const {
    return (corpus.file->size() / corpus.share - 1) / shape_.length;
  }
  bool starts_afresh() const override { return step_ == 0; }
  Place place_of(std::int64_t row) const override {
    const std::size_t i = owner_of(row);
    const Corpus& corpus = corpora_[i];
    const std::int64_t stream = (row - corpus.first) * (corpus.file->size() / corpus.share);
    return {.corpus = i, .begin = stream + step_ % chunks_of(corpus) * shape_.length};
  }
};

constexpr std::int64_t kRowsDealt = 65536;  // together, to chunks

class MixedChunks : public MixedBatches {
 public:
  MixedChunks(const Mixture& mixture, BatchShape shape, std::uint64_t seed)
      : MixedBatches(mixture, shape, kRowsDealt), seed_(seed) {
    for (const Corpus& corpus : corpora_) {
      if (chunks_of(corpus) < 1) {
        refuse(corpus, 1);
      }
    }
  }

 private:
  std::int64_t chunks_of(const Corpus& corpus) const { return (corpus.file->size() - 1) / shape_.length; }
  bool starts_afresh() const override { return true; }
  Place place_of(std::int64_t row) const override {
    const std::int64_t number = step_ * shape_.batch + row, deal = number / kRowsDealt;
    const Shuffle deals(static_cast<std::uint64_t>(kRowsDealt), mix(seed_, static_cast<std::uint64_t>(deal)));
    const auto dealt = static_cast<std::int64_t>(deals(static_cast<std::uint64_t>(number % kRowsDealt)));
    const std::size_t i = owner_of(dealt);
    const Corpus& corpus = corpora_[i];
    const std::int64_t nth = deal * corpus.share + dealt - corpus.first, chunks = chunks_of(corpus);
    const std::uint64_t own = mix(mix(seed_, static_cast<std::uint64_t>(i)), "corpus");
    const Shuffle order(static_cast<std::uint64_t>(chunks), mix(own, static_cast<std::uint64_t>(nth / chunks)));
    const auto chunk = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(nth % chunks)));
    return {.corpus = i, .begin = chunk * shape_.length};
  }

  std::uint64_t seed_;
};

}  // namespace

std::vector<std::int64_t> shares_of(const std::vector<double>& weights, std::int64_t rows) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares;
  std::vector<std::pair<double, std::size_t>> missing;  // fractions of a row, negative: the largest first
  for (const double weight : weights) {
    const double share = weight / sum * static_cast<double>(rows);
    shares.push_back(static_cast<std::int64_t>(share));
    missing.emplace_back(static_cast<double>(shares.back()) - share, missing.size());
  }
  std::sort(missing.begin(), missing.end());
  std::int64_t left = rows - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; i = (i + 1) % missing.size(), --left) {
    ++shares[missing[i].second];
  }
  return shares;
}

std::unique_ptr<TokenBatches> mix_batches(const Mixture& mixture, BatchShape shape, config::Batching batching,
                                          std::uint64_t seed) {
  if (mixture.files.empty() || mixture.files.size() != mixture.weights.size()) {
    fail("mixture: {} files and {} weights", mixture.files.size(), mixture.weights.size());
  }
  if (batching == config::Batching::chunks) {
    return std::make_unique<MixedChunks>(mixture, shape, seed);
  }
  return std::make_unique<MixedStreams>(mixture, shape);
}

}  // namespace headroom::data
