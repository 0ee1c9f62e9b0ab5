#include "mask.h"

namespace headroom::ops {

at::Tensor visible_keys(const AttentionMask& mask, const c10::SymInt& n_queries, const c10::SymInt& n_keys,
                        at::Device device) {
  at::Tensor visible;
  if (mask.causal && n_queries > 1) {
    const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
    const at::Tensor key = at::arange(at::Scalar(n_keys), whole);
    const at::Tensor query = at::arange(at::Scalar(n_keys - n_queries), at::Scalar(n_keys), whole).unsqueeze(1);
    visible = key.le(query);
    if (mask.window > 0) {
      visible = visible.logical_and(key.gt(query - mask.window));
    }
  } else if (mask.causal && mask.window > 0) {
    visible = at::arange(at::Scalar(n_keys), device).ge(at::Scalar(n_keys - mask.window)).unsqueeze(0);
  }
  if (mask.valid_keys) {
    const at::Tensor valid = mask.valid_keys->unsqueeze(1).unsqueeze(1);
    visible = visible.defined() ? visible.logical_and(valid) : valid.expand_symint({-1, 1, n_queries, n_keys});
  }
  return visible;
}

}  // namespace headroom::ops
