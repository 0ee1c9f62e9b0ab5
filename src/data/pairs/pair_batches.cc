#include "pair_batches.h"

#include <algorithm>

#include "data/tokens/shuffle.h"
#include "headroom/core/error.h"

namespace headroom::data {

namespace {

// Returns the length of the longer side of a pair, including the end token.
std::int64_t padded_length(const PairFile& file, std::int64_t pair) {
  return std::max(file.source_length(pair), file.target_length(pair)) + 1;
}

}  // namespace

PairBatches::PairBatches(const PairFile& file, const PairBatchOptions& options)
    : EpochStream("sentence pairs"), seed_(options.seed) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(file.size()));
  starts_.assign(static_cast<std::size_t>(options.longest + 2), 0);
  for (std::int64_t pair = 0; pair < file.size(); ++pair) {
    const std::int64_t length = padded_length(file, pair);
    lengths[static_cast<std::size_t>(pair)] = length;
    if (length > options.longest) {
      ++too_long_;
    } else {
      ++starts_[static_cast<std::size_t>(length + 1)];
    }
  }
  for (std::size_t length = 1; length < starts_.size(); ++length) {
    starts_[length] += starts_[length - 1];
  }
  order_.resize(static_cast<std::size_t>(starts_.back()));
  std::vector<std::int64_t> filled = starts_;
  for (std::int64_t pair = 0; pair < file.size(); ++pair) {
    if (const std::int64_t length = lengths[static_cast<std::size_t>(pair)]; length <= options.longest) {
      order_[static_cast<std::size_t>(filled[static_cast<std::size_t>(length)]++)] = pair;
    }
  }
  const std::int64_t usable = std::ssize(order_) / options.multiple * options.multiple;
  const auto length_at = [&](std::int64_t place) {
    return lengths[static_cast<std::size_t>(order_[static_cast<std::size_t>(place)])];
  };
  const BatchLimits limits{.rows = options.rows, .tokens = options.tokens, .multiple = options.multiple};
  for (std::int64_t begin = 0, end = 0; begin < usable; begin = end) {
    cuts_.push_back(begin);
    end = batch_end(begin, usable, limits, length_at);
  }
  cuts_.push_back(usable);
  set_per_epoch(std::ssize(cuts_) - 1);
  if (per_epoch() < 1) {
    user_error("{}: must hold at least {} pairs of up to {} tokens a side (model.context_length), got {}",
               file.identity(), options.multiple, options.longest - 1, order_.size());
  }
}

std::vector<std::int64_t> PairBatches::next() {
  const DataPosition position = advance();
  const std::uint64_t epoch = mix(seed_, static_cast<std::uint64_t>(position.epoch));
  const Shuffle batches(static_cast<std::uint64_t>(per_epoch()), mix(epoch, std::uint64_t{0}));
  const auto batch = static_cast<std::size_t>(batches(static_cast<std::uint64_t>(position.step)));
  std::vector<std::int64_t> pairs;
  for (std::int64_t place = cuts_[batch]; place < cuts_[batch + 1]; ++place) {
    // The length of the pairs at this position, and the pair of that length that this epoch's shuffle puts here.
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), place);
    const std::int64_t first = *(after - 1), count = *after - first;
    const auto length = static_cast<std::uint64_t>(after - starts_.begin());
    const Shuffle same(static_cast<std::uint64_t>(count), mix(epoch, length));
    const auto chosen = static_cast<std::int64_t>(same(static_cast<std::uint64_t>(place - first)));
    pairs.push_back(order_[static_cast<std::size_t>(first + chosen)]);
  }
  return pairs;
}

}  // namespace headroom::data
