// Assigns parameter shards to ranks, and lays out parameters and gradients in two flat buffers. The owner of a shard
// reduces its gradients, stores its moments and updates it.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/core/process_group.h"
#include "headroom/nn/parameters.h"
#include "training/parallel/shards.h"

namespace headroom::train {

using parallel::Shard;  // Shard::tensor is the parameter's index

// Returns the tensor itself if the shard covers it, else a flat view of the shard. The tensor must be contiguous.
at::Tensor view_of(const at::Tensor& tensor, const Shard& shard);
bool is_whole(const Shard& shard, const at::Tensor& tensor);

// Returns the shards of all parameters, in order, assigned to this number of ranks (parallel::assign_shards). A single
// rank owns all parameters, uncut. Identical on all ranks.
std::vector<Shard> all_shards(const nn::Parameters& parameters, config::Optimizer optimizer, int ranks);
// Returns those that this rank owns.
std::vector<Shard> owned_shards(const nn::Parameters& parameters, config::Optimizer optimizer,
                                const ProcessGroup& group);

// Offsets in the flat buffers. Uncut parameters come first, grouped by owner and from last to first within an owner,
// which is the order in which backward passes reach them. Parameters that are cut into shards follow.
struct Layout {
  struct Place {  // the range of a parameter, and its buckets [first_bucket, end_bucket)
    std::int64_t begin = 0, count = 0;
    std::size_t first_bucket = 0, end_bucket = 0;
  };
  struct Bucket {  // elements of one owner that are sent together, at most parallel::bucket_elements()
    int owner = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t parameters = 0;  // number of parameters in it
    std::size_t last = 0;         // the parameter whose gradient is computed last
  };
  struct OwnerRange {  // consecutive buckets of one owner
    int owner = 0;
    std::int64_t begin = 0, end = 0;
  };

  Layout(std::vector<Shard> of_all, int ranks);  // all_shards() for this number of ranks

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
