// Plain attention on a GPU with torch's scaled_dot_product_attention, which saves no T x S matrix for the backward
// pass.
#include "attention_operator.h"

namespace headroom::ops {
namespace {

std::string cuda_attention_refusal(const AttentionInputs& in) {
  if (in.mixture || in.pre || in.post) {
    return "mixtures of keys and composed heads are supported on the CPU only";
  }
  if (in.bias || in.query_bias) {
    return "biases on the scores are not supported";
  }
  if (in.r || in.sink || in.mask.valid_keys) {
    return "relative positions, sinks and padding are supported on the CPU only";
  }
  return {};
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
  return at::scaled_dot_product_attention(in.q, in.k, in.v, mask, /*dropout_p=*/0.0, plain_causal, in.scale,
                                          /*enable_gqa=*/in.q.size(1) != in.k.size(1));
}

const Registration kAttentionOnCuda(attention_backends(), {{"scaled_dot_product", at::kCUDA, 0, all_but_float64},
                                                           cuda_attention_refusal,
                                                           scaled_dot_product});

}  // namespace
}  // namespace headroom::ops
