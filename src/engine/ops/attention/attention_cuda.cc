// Plain attention on a GPU with torch's scaled_dot_product_attention, which saves no T x S matrix for the backward
// pass.
#include <cstdint>

#include "attention_operator.h"

namespace headroom::ops {
namespace {

std::string cuda_attention_refusal(const AttentionInputs& in) {
  if (in.mixture || in.pre || in.post) {
    return "mixtures of keys and composed heads are supported on the CPU only";
  }
  if (in.formula.given()) {
    return "formulas of scores are supported on the CPU only";
  }
  if (in.bias || in.query_bias) {
    return "biases on the scores are not supported";
  }
  if (in.r || in.sink || in.mask.valid_keys) {
    return "relative positions, sinks and padding are supported on the CPU only";
  }
  return {};
}

// torch's kernels read 16 bytes at a time; some fail if rows begin elsewhere.
at::Tensor aligned(const at::Tensor& x) {
  constexpr std::int64_t kBytes = 16;
  bool fits = reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % kBytes == 0 && x.stride(3) == 1;
  for (std::int64_t i = 0; i < 3; ++i) {
    fits = fits && x.stride(i) * x.element_size() % kBytes == 0;
  }
  return fits ? x : x.clone(at::MemoryFormat::Contiguous);
}

at::Tensor scaled_dot_product(const AttentionInputs& in) {
  const bool plain_causal =
      in.mask.causal && in.mask.window == 0 && !in.mask.valid_keys && in.q.size(2) == in.k.size(2);
  std::optional<at::Tensor> mask;
  if (!plain_causal) {
    const at::Tensor visible = visible_keys(in.mask, in.q.size(2), in.k.size(2), in.q.device());
    if (visible.defined()) {
      mask = visible;
    }
  }
  return at::scaled_dot_product_attention(aligned(in.q), aligned(in.k), aligned(in.v), mask, /*dropout_p=*/0.0,
                                          plain_causal, in.scale,
                                          /*enable_gqa=*/in.q.size(1) != in.k.size(1));
}

const Registration kAttentionOnCuda(attention_backends(), {{"scaled_dot_product", at::kCUDA, 0, all_but_float64},
                                                           cuda_attention_refusal,
                                                           scaled_dot_product});

}  // namespace
}  // namespace headroom::ops
