#include "shards.h"

#include <functional>
#include <queue>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::parallel {

namespace {

// Cuts tensors of more than `most` elements into shards of almost equal size; keeps the others whole.
std::vector<Shard> cut(const std::vector<ShardedTensor>& tensors, std::int64_t most) {
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t elements = tensors[i].elements;
    std::int64_t step = std::max<std::int64_t>(elements, 1);
    if (tensors[i].elementwise && elements > most) {
      const std::int64_t units = ceil_div(elements, kShardUnit), count = ceil_div(elements, most);
      step = ceil_div(units, count) * kShardUnit;
    }
    for (std::int64_t begin = 0; begin < elements || begin == 0; begin += step) {
      shards.push_back({.tensor = i, .begin = begin, .end = std::min(begin + step, elements)});
    }
  }
  return shards;
}

}  // namespace

std::int64_t accumulators_of(const config::TrainOptions& train) {
  return train.gradient_accumulators > 0 ? train.gradient_accumulators : train.accumulate;
}

void raise_accumulators(config::TrainOptions& train, std::int64_t ranks) {
  if (accumulators_of(train) >= ranks) {
    return;
  }
  if (train.accumulate >= ranks) {
    for (train.gradient_accumulators = ranks; train.accumulate % train.gradient_accumulators != 0;) {
      ++train.gradient_accumulators;
    }
    return;
  }
  if (train.batch_size % ranks != 0) {
    const std::int64_t below = train.batch_size / ranks * ranks;
    user_error("train.batch_size: must be a multiple of the number of ranks, {}, got {}; for example {}{}", ranks,
               train.batch_size, below > 0 ? fmt::format("{} or ", below) : "", below + ranks);
  }
  train.accumulate = ranks;
  train.gradient_accumulators = 0;
}

std::vector<Shard> assign_shards(const std::vector<ShardedTensor>& tensors, int ranks) {
  constexpr std::int64_t kShardsOfARank = 32;
  const std::int64_t all = sum_over(tensors, &ShardedTensor::elements);
  const std::int64_t most = all / ranks / kShardsOfARank / kShardUnit * kShardUnit;
  std::vector<Shard> shards = cut(tensors, ranks > 1 ? std::max(most, kShardUnit) : all);
  std::vector<Shard*> order;
  order.reserve(shards.size());
  for (Shard& shard : shards) {
    order.push_back(&shard);
  }
  std::ranges::stable_sort(order, [](const Shard* a, const Shard* b) { return a->count() > b->count(); });
  using Load = std::pair<std::int64_t, int>;  // elements, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least_loaded;
  for (int rank = 0; rank < ranks; ++rank) {
    least_loaded.emplace(0, rank);
  }
  for (Shard* shard : order) {
    const auto [elements, rank] = least_loaded.top();
    least_loaded.pop();
    shard->owner = rank;
    least_loaded.emplace(elements + shard->count(), rank);
  }
  return shards;
}

}  // namespace headroom::parallel
