#include "ops/attention/mask.h"

namespace headroom::ops {

at::Tensor visible_keys(const AttentionMask& mask, std::int64_t n_queries, std::int64_t n_keys, at::Device device) {
  at::Tensor visible;
  if (mask.causal && n_queries > 1) {
    visible = at::ones({n_queries, n_keys}, at::TensorOptions(at::kBool).device(device)).tril_(n_keys - n_queries);
    if (mask.window > 0) {
      visible.triu_(n_keys - n_queries - mask.window + 1);
    }
  } else if (mask.causal && mask.window > 0) {
    visible = at::arange(n_keys, device).ge(n_keys - mask.window).unsqueeze(0);
  }
  if (mask.valid_keys) {
    const at::Tensor valid = mask.valid_keys->unsqueeze(1).unsqueeze(1);
    visible = visible.defined() ? visible.logical_and(valid) : valid.expand({-1, 1, n_queries, n_keys});
  }
  return visible;
}

}  // namespace headroom::ops
