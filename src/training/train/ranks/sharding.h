// Assigns parameter shards to ranks, and lays out parameters and gradients in the shared buffers. The owner of a shard
// reduces its gradients, stores its moments and updates it.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/parameters.h"
#include "training/cost/ranks.h"

namespace headroom::train {

using cost::Shard;  // Shard::tensor is the parameter's index

// Returns the tensor itself if the shard covers it, else a flat view of the shard. The tensor must be contiguous.
at::Tensor view_of(const at::Tensor& tensor, const Shard& shard);
bool is_whole(const Shard& shard, const at::Tensor& tensor);

// The assignment of all parameters to ranks; identical on all ranks.
class Sharding {
 public:
  Sharding(const nn::Parameters& parameters, int ranks, config::Optimizer optimizer);
  const std::vector<Shard>& shards() const { return shards_; }  // of all ranks, in the order of the parameters
  std::int64_t elements(int rank) const { return elements_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<Shard> shards_;
  std::vector<std::int64_t> elements_;  // by rank
};

// The shards of one rank. A default-constructed object owns all parameters, uncut.
class OwnedShards {
 public:
  OwnedShards() = default;
  OwnedShards(const Sharding& sharding, int rank) : sharding_(&sharding), rank_(rank) {}
  std::vector<Shard> of(const nn::Parameters& parameters) const;
  bool leads() const { return rank_ == 0; }

 private:
  const Sharding* sharding_ = nullptr;
  int rank_ = 0;
};

// Offsets in the shared buffers. Uncut parameters come first, grouped by owner and from last to first within an owner,
// which is the order in which backward passes reach them. Parameters that are cut into shards follow.
struct Layout {
  struct Place {  // the range of a parameter, and its buckets [first_bucket, end_bucket)
    std::int64_t begin = 0, count = 0;
    std::size_t first_bucket = 0, end_bucket = 0;
  };
  struct Bucket {  // elements of one owner that are sent together, at most cost::bucket_elements()
    int owner = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t parameters = 0;  // number of parameters in it
    std::size_t last = 0;         // the parameter whose gradient is computed last
  };
  struct OwnerRange {  // consecutive buckets of one owner
    int owner = 0;
    std::int64_t begin = 0, end = 0;
  };

  // `all_shards`: the shards of all parameters, in order.
  Layout(std::vector<Shard> all_shards, int ranks);

  // Returns the bucket of this parameter that contains this element of the buffer.
  std::size_t bucket_at(std::size_t parameter, std::int64_t element) const;

  std::vector<Shard> shards;
  std::vector<Place> places;  // by parameter
  std::vector<Bucket> buckets;
  std::vector<OwnerRange> owner_ranges;
  std::int64_t elements = 0;  // in the whole buffer

 private:
  void add(const Shard* first, const Shard* end, std::int64_t most);
  void add_to_buckets(const Shard& shard, std::int64_t begin, std::int64_t most);
};

}  // namespace headroom::train
