#include "sharding.h"

#include <algorithm>
#include <utility>

#include "headroom/ops/optimizers.h"

namespace headroom::train {

static_assert(parallel::kShardUnit % ops::kSquareBlock == 0,
              "the bits of the gradient norm would depend on the shards");

bool is_whole(const Shard& shard, const at::Tensor& tensor) {
  return shard.count() == tensor.numel();
}

at::Tensor view_of(const at::Tensor& tensor, const Shard& shard) {
  return is_whole(shard, tensor) ? tensor : tensor.detach().view({-1}).narrow(0, shard.begin, shard.count());
}

std::vector<Shard> all_shards(const nn::Parameters& parameters, config::Optimizer optimizer, int ranks) {
  std::vector<parallel::ShardedTensor> tensors;
  for (const nn::Parameter& parameter : parameters.all()) {
    tensors.push_back({.elements = parameter.tensor.numel(),
                       .elementwise = config::is_elementwise(optimizer, parameter.hidden.has_value())});
  }
  return parallel::assign_shards(tensors, ranks);
}

std::vector<Shard> owned_shards(const nn::Parameters& parameters, config::Optimizer optimizer,
                                const ProcessGroup& group) {
  std::vector<Shard> shards = all_shards(parameters, optimizer, group.size());
  std::erase_if(shards, [&](const Shard& shard) { return shard.owner != group.rank(); });
  return shards;
}

Layout::Layout(std::vector<Shard> of_all, int ranks) : shards(std::move(of_all)) {
  std::vector<std::size_t> first;  // index of each parameter's first shard, and the end
  for (std::size_t k = 0; k < shards.size(); ++k) {
    if (first.size() == shards[k].tensor) {
      first.push_back(k);
    }
  }
  first.push_back(shards.size());
  places.resize(first.size() - 1);
  const std::int64_t most = parallel::bucket_elements(ranks);
  const auto add_if = [&](auto&& condition) {
    for (std::size_t i = places.size(); i-- > 0;) {
      const Shard* const begin = shards.data() + first[i];
      const Shard* const end = shards.data() + first[i + 1];
      if (condition(*begin, end - begin == 1)) {
        add(begin, end, most);
      }
    }
  };
  for (int owner = 0; owner < ranks; ++owner) {
    add_if([owner](const Shard& shard, bool whole) { return whole && shard.owner == owner; });
  }
  add_if([](const Shard&, bool whole) { return !whole; });
  for (const Bucket& bucket : buckets) {
    if (owner_ranges.empty() || owner_ranges.back().owner != bucket.owner) {
      owner_ranges.push_back({.owner = bucket.owner, .begin = bucket.begin, .end = bucket.end});
    }
    owner_ranges.back().end = bucket.end;
  }
}

void Layout::add(const Shard* first, const Shard* end, std::int64_t most) {
  Place& place = places[first->tensor];
  place.begin = elements;
  place.count = (end - 1)->end;
  for (const Shard* shard = first; shard != end && place.count > 0; ++shard) {
    add_to_buckets(*shard, place.begin, most);
  }
  if (place.count > 0) {
    place.end_bucket = buckets.size();
    place.first_bucket = bucket_at(first->tensor, place.begin);
  }
  for (std::size_t b = place.first_bucket; b < place.end_bucket; ++b) {
    ++buckets[b].parameters;
  }
  elements += parallel::aligned(place.count);
}

// Adds the shard to the last bucket if it fits there entirely, else opens as many buckets as the shard needs.
void Layout::add_to_buckets(const Shard& shard, std::int64_t begin, std::int64_t most) {
  const std::int64_t end = begin + parallel::aligned(shard.end);
  for (std::int64_t at = begin + shard.begin; at < end; at = buckets.back().end) {
    const bool fits = !buckets.empty() && buckets.back().owner == shard.owner && end - buckets.back().begin <= most;
    if (!fits) {
      buckets.push_back({.owner = shard.owner, .begin = at, .end = at, .last = shard.tensor});
    }
    Bucket& bucket = buckets.back();
    bucket.end = std::min(end, bucket.begin + most);
    bucket.last = std::min(bucket.last, shard.tensor);
  }
}

std::size_t Layout::bucket_at(std::size_t parameter, std::int64_t element) const {
  const auto before = [](std::int64_t value, const Bucket& bucket) { return value < bucket.end; };
  const auto end = buckets.begin() + static_cast<std::ptrdiff_t>(places[parameter].end_bucket);
  return static_cast<std::size_t>(std::upper_bound(buckets.begin(), end, element, before) - buckets.begin());
}

}  // namespace headroom::train
