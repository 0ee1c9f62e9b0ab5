#include "headroom/ops/linear_attention.h"

#include <algorithm>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/linear_chunk.h"
#include "headroom/ops/choice.h"
#include "prefix_product.h"
#include "refusal.h"

namespace headroom::ops {
namespace {

at::Tensor wide(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
}

void check(const LinearAttentionInputs& in) {
  const at::Tensor &q = in.q, &k = in.k;
  const bool fits = q.dim() == 4 && k.dim() == 4 && k.sizes() == in.v.sizes() && q.size(0) == k.size(0) &&
                    q.size(3) == k.size(3) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  if (!fits) {
    fail("linear attention: q must be [B, H, T, e], k and v [B, G, S, e] with G dividing H");
  }
  if (in.causal && q.size(2) > k.size(2)) {
    fail("linear attention: a causal mask needs at least as many keys as queries, got {} and {}", k.size(2), q.size(2));
  }
}

void remember(LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor kv = k.transpose(2, 3).matmul(v), sum = k.sum(2);
  state.kv = state.kv.defined() ? state.kv + kv : kv;
  state.k = state.k.defined() ? state.k + sum : sum;
}

// Sums over keys of a_ij v_j and of a_ij.
struct Sums {
  at::Tensor values;   // [B, G, h, t, e], h query heads a key head
  at::Tensor weights;  // [B, G, h, t]
};

Sums through_state(const at::Tensor& q, const LinearState& state) {
  return {q.matmul(state.kv.unsqueeze(2)), (q * state.k.unsqueeze(2).unsqueeze(3)).sum(-1)};
}

Sums causal_chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearState& state) {
  const at::Tensor a = q.matmul(k.unsqueeze(2).transpose(3, 4)).tril();
  Sums sums{a.matmul(v.unsqueeze(2)), a.sum(-1)};
  if (state.kv.defined()) {
    const Sums past = through_state(q, state);
    sums = {sums.values + past.values, sums.weights + past.weights};
  }
  return sums;
}

// `last` says whether somebody wants the state behind the last chunk.
Sums causal_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, LinearState& state, bool last) {
  const std::int64_t t = q.size(3), before = k.size(2) - t;
  if (before > 0) {
    remember(state, k.narrow(2, 0, before), v.narrow(2, 0, before));
  }
  std::vector<at::Tensor> values, weights;
  for (std::int64_t begin = 0; begin < t; begin += kLinearChunk) {
    const std::int64_t n = std::min(kLinearChunk, t - begin);
    const at::Tensor kc = k.narrow(2, before + begin, n), vc = v.narrow(2, before + begin, n);
    const Sums sums = causal_chunk(q.narrow(3, begin, n), kc, vc, state);
    values.push_back(sums.values);
    weights.push_back(sums.weights);
    if (last || begin + n < t) {
      remember(state, kc, vc);
    }
  }
  return {at::cat(values, 3), at::cat(weights, 3)};
}

std::string fused_refusal(const LinearAttentionInputs& in, const LinearState* carried) {
  return carried != nullptr ? "a state that is carried on has the reference only" : cpu_float_refusal(in.q);
}

// A column of ones beside v: the sum of the weights comes along with that of the values.
Sums fused_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearAttentionInputs& in) {
  const std::int64_t b = q.size(0), h = q.size(1), t = q.size(2), e = v.size(3), g = k.size(1);
  std::vector<std::int64_t> one_more = v.sizes().vec();
  one_more[3] = 1;
  const at::Tensor sums = prefix_product(q, k, at::cat({v, at::ones(one_more, v.options())}, 3), in.causal);
  return {sums.narrow(3, 0, e).reshape({b, g, h / g, t, e}), sums.select(3, e).reshape({b, g, h / g, t})};
}

}  // namespace

at::Tensor linear_attention(const LinearAttentionInputs& in, Implementation implementation, LinearState* carried) {
  check(in);
  const bool fused = choose("linear_attention", implementation, fused_refusal(in, carried)) == Implementation::fused;
  const std::int64_t b = in.q.size(0), h = in.q.size(1), t = in.q.size(2), e = in.q.size(3), g = in.k.size(1);
  const at::Tensor q = wide(in.q).reshape({b, g, h / g, t, e}), v = wide(in.v);
  at::Tensor k = wide(in.k);
  if (in.valid_keys) {
    k = k * in.valid_keys->to(k.scalar_type()).unsqueeze(1).unsqueeze(3);
  }
  LinearState own;
  LinearState& state = carried != nullptr ? *carried : own;
  Sums sums;
  if (fused) {
    sums = fused_sums(wide(in.q), k, v, in);
  } else if (in.causal) {
    sums = causal_sums(q, k, v, state, carried != nullptr);
  } else {
    remember(state, k, v);
    sums = through_state(q, state);
  }
  at::Tensor o = sums.values * (in.factor * in.output_factor);
  if (in.normalise) {
    const at::Tensor weight = sums.weights * in.factor + in.epsilon;
    const at::Tensor none = weight.detach().eq(0.0);
    o = (o / weight.masked_fill(none, 1.0).unsqueeze(-1)).masked_fill(none.unsqueeze(-1), 0.0);
  }
  return o.view({b, h, t, e}).to(in.v.scalar_type());
}

}  // namespace headroom::ops
