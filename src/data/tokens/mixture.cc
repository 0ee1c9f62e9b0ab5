// Batches from several files. A row's file and its position in the file are functions of the row's number.
#include <algorithm>
#include <numeric>
#include <utility>

#include "batches.h"
#include "example_order.h"
#include "headroom/core/error.h"

namespace headroom::data {
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
