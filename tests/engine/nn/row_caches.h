// Decodes a batch with one layer in tests: a cache for each row.
#pragma once

#include <vector>

#include "headroom/nn/attention.h"

namespace headroom::nn {

class RowCaches {
 public:
  RowCaches(const Attention& layer, std::int64_t rows) : all_(static_cast<std::size_t>(rows), layer.make_cache()) {
    for (AttentionCache& cache : all_) {
      each_.push_back(&cache);
    }
  }
  RowCaches(const RowCaches&) = delete;
  RowCaches& operator=(const RowCaches&) = delete;

  // The layer's output for the next tokens x [B, n, d] of all rows.
  at::Tensor read(const Attention& layer, const at::Tensor& x, const Context& context = {}) {
    AttentionInput step;
    step.x = x;
    step.caches = each_;
    return layer(step, context);
  }
  // Of each row, at capacity.
  std::int64_t elements() const { return all_.front().elements(); }

 private:
  std::vector<AttentionCache> all_;
  std::vector<AttentionCache*> each_;
};

}  // namespace headroom::nn
