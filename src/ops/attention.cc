#include "headroom/ops/attention.h"

#include <fmt/ranges.h>

#include "attention_mask.h"
#include "headroom/core/error.h"
#include "headroom/kernels/cpu/attention.h"
#include "headroom/ops/choice.h"
#include "registered.h"

namespace headroom::ops {
namespace {

void check_mixture(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  const std::int64_t n = mixture.n_components(), groups = in.k.size(1), keys = in.k.size(2);
  const auto per_key = [&](std::int64_t size) { return size == 1 || size == keys; };
  if (mixture.shift && !mixture.more_keys.empty()) {
    fail("attention: a mixture has shifts or more keys, not both");
  }
  for (const at::Tensor& key : mixture.more_keys) {
    if (key.sizes() != in.k.sizes()) {
      fail("attention: every component's keys must be shaped as k, {}, got {}", fmt::join(in.k.sizes(), "x"),
           fmt::join(key.sizes(), "x"));
    }
  }
  if (mixture.shift && (mixture.shift->dim() != 4 || mixture.shift->size(1) != groups ||
                        !per_key(mixture.shift->size(2)) || mixture.shift->size(3) != in.k.size(3))) {
    fail("attention: shift must be [R, {}, {} or 1, {}], got {}", groups, keys, in.k.size(3),
         fmt::join(mixture.shift->sizes(), "x"));
  }
  if (mixture.coefficient && mixture.coefficient->sizes() != at::IntArrayRef{n}) {
    fail("attention: coefficient must be [{}], got {}", n, fmt::join(mixture.coefficient->sizes(), "x"));
  }
  if (mixture.prior && (mixture.prior->dim() != 3 || mixture.prior->size(0) != n || mixture.prior->size(1) != groups ||
                        !per_key(mixture.prior->size(2)))) {
    fail("attention: prior must be [{}, {}, {} or 1], got {}", n, groups, keys, fmt::join(mixture.prior->sizes(), "x"));
  }
}

void check(const AttentionInputs& in) {
  const auto& q = in.q;
  const auto& k = in.k;
  const auto& v = in.v;
  const auto& mask = in.mask;
  const auto& r = in.r;
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) {
    fail("attention: q, k and v must have 4 axes, got {}, {} and {}", q.dim(), k.dim(), v.dim());
  }
  const bool fits = k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(1) > 0 &&
                    q.size(1) % k.size(1) == 0;
  if (!fits) {
    fail("attention: k and v must be [B, G, S, e] with B={}, e={} and G dividing H={}, got {} and {}", q.size(0),
         q.size(3), q.size(1), fmt::join(k.sizes(), "x"), fmt::join(v.sizes(), "x"));
  }
  if (mask.causal && q.size(2) > k.size(2)) {
    fail("attention: a causal mask needs at least as many keys as queries, got {} and {}", k.size(2), q.size(2));
  }
  if (in.q_position.has_value() != r.has_value()) {
    fail("attention: q_position and r must be given together");
  }
  const std::int64_t offsets = mask.causal ? k.size(2) : k.size(2) + q.size(2) - 1;
  if (r && (r->dim() != 3 || r->size(0) != q.size(1) || r->size(1) != offsets || r->size(2) != q.size(3))) {
    fail("attention: r must be [H, C, e] = {}x{}x{}, got {}", q.size(1), offsets, q.size(3),
         fmt::join(r->sizes(), "x"));
  }
  if (in.mixture) {
    check_mixture(in);
  }
}

// torch's own blocked kernel: no T x S matrix is kept for the backward pass.
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

}  // namespace

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

std::string attention_fused_refusal(const AttentionInputs& in) {
  const bool cpu = in.q.is_cpu();
  if (in.mixture || in.pre || in.post) {
    const std::string refusal = in.mixture ? mixture_attention_refusal(in) : composed_attention_refusal(in);
    if (!refusal.empty()) {
      return refusal;
    }
  }
  if (!cpu && (in.r || in.mask.valid_keys)) {
    return "relative positions and padding have the reference only beside the CPU";
  }
  if (in.q.scalar_type() == at::kDouble) {
    return "float64 has the reference only";
  }
  return {};
}

at::Tensor attention(const AttentionInputs& in, Implementation implementation) {
  check(in);
  std::string refusal = attention_fused_refusal(in);
  const bool packs = in.mixture || in.q.scalar_type() != at::kFloat;
  if (implementation == Implementation::automatic && in.q.is_cpu() && packs && in.q.size(2) < kernels::kFewQueries) {
    refusal = "for a few queries packing the keys costs more than it saves";
  }
  if (choose("attention", implementation, refusal) == Implementation::reference) {
    return attention_reference(in);
  }
  if (in.mixture) {
    return call_mixture_attention(in);
  }
  if (in.pre || in.post) {
    return call_composed_attention(in);
  }
  return in.q.is_cpu() ? call_attention(in) : scaled_dot_product(in);
}

}  // namespace headroom::ops
