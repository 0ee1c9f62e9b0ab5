#include "headroom/ops/linear_attention.h"

#include <algorithm>
#include <vector>

#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "linear_attention_operator.h"

namespace headroom::ops {
namespace {

void add_to_state(LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor kv = k.transpose(2, 3).matmul(v), sum = k.sum(2);
  state.kv = state.kv.defined() ? state.kv + kv : kv;
  state.k = state.k.defined() ? state.k + sum : sum;
}

// Sums over keys of a_ij v_j and of a_ij.
struct GroupedSums {
  at::Tensor values;   // [B, G, h, t, w], h query heads a key head
  at::Tensor weights;  // [B, G, h, t]
};

GroupedSums apply_state(const at::Tensor& q, const LinearState& state) {
  return {q.matmul(state.kv.unsqueeze(2)), (q * state.k.unsqueeze(2).unsqueeze(3)).sum(-1)};
}

GroupedSums causal_chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearState& state) {
  const at::Tensor a = q.matmul(k.unsqueeze(2).transpose(3, 4)).tril();
  GroupedSums sums{a.matmul(v.unsqueeze(2)), a.sum(-1)};
  if (state.kv.defined()) {
    const GroupedSums past = apply_state(q, state);
    sums = {sums.values + past.values, sums.weights + past.weights};
  }
  return sums;
}

// `last`: also add the last chunk to the state.
GroupedSums causal_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, LinearState& state, bool last) {
  const std::int64_t t = q.size(3), before = k.size(2) - t;
  if (before > 0) {
    add_to_state(state, k.narrow(2, 0, before), v.narrow(2, 0, before));
  }
  std::vector<at::Tensor> values, weights;
  for (std::int64_t begin = 0; begin < t; begin += kLinearChunk) {
    const std::int64_t n = std::min(kLinearChunk, t - begin);
    const at::Tensor kc = k.narrow(2, before + begin, n), vc = v.narrow(2, before + begin, n);
    const GroupedSums sums = causal_chunk(q.narrow(3, begin, n), kc, vc, state);
    values.push_back(sums.values);
    weights.push_back(sums.weights);
    if (last || begin + n < t) {
      add_to_state(state, kc, vc);
    }
  }
  return {at::cat(values, 3), at::cat(weights, 3)};
}

LinearSums linear_sums_reference(const LinearSumsInputs& in) {
  const at::Tensor q = in.q.unflatten(1, {in.k.size(1), -1});
  LinearState own;
  LinearState& state = in.carried != nullptr ? *in.carried : own;
  GroupedSums sums;
  if (in.causal) {
    sums = causal_sums(q, in.k, in.v, state, in.carried != nullptr);
  } else {
    add_to_state(state, in.k, in.v);
    sums = apply_state(q, state);
  }
  return {sums.values.flatten(1, 2), sums.weights.flatten(1, 2)};
}

at::Tensor wide(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
}

void check(const LinearAttentionInputs& in) {
  const at::Tensor &q = in.q, &k = in.k;
  const bool fits = q.dim() == 4 && k.dim() == 4 && in.v.dim() == 4 &&
                    k.sym_sizes().slice(0, 3) == in.v.sym_sizes().slice(0, 3) && q.sym_size(0) == k.sym_size(0) &&
                    q.sym_size(3) == k.sym_size(3) && q.sym_size(1) > 0 && k.sym_size(1) > 0 &&
                    q.sym_size(1) % k.sym_size(1) == 0;
  if (!fits) {
    fail(
        "linear attention: q must be [B, H, T, e], k [B, G, S, e] and v [B, G, S, w] with G dividing H, got {}, {} and "
        "{}",
        shape_of(q), shape_of(k), shape_of(in.v));
  }
  if (in.valid_keys && (in.valid_keys->dim() != 2 || in.valid_keys->sym_size(0) != k.sym_size(0) ||
                        in.valid_keys->sym_size(1) != k.sym_size(2))) {
    fail("linear attention: valid_keys must be [B, S] = {}x{}, got {}", text_of(k.sym_size(0)), text_of(k.sym_size(2)),
         shape_of(*in.valid_keys));
  }
  if (in.causal && q.sym_size(2) > k.sym_size(2)) {
    fail("linear attention: a causal mask needs at least as many keys as queries, got {} and {}",
         c10::str(k.sym_size(2)), c10::str(q.sym_size(2)));
  }
}

// The state must have both sums or neither.
void check_state(const LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  if (!state.kv.defined() && !state.k.defined()) {
    return;
  }
  const c10::SymInt b = k.sym_size(0), g = k.sym_size(1), e = k.sym_size(3);
  const std::vector<c10::SymInt> of_products = {b, g, e, v.sym_size(3)}, of_keys = {b, g, e};
  if (!state.kv.defined() || !state.k.defined() || state.kv.sym_sizes() != at::SymIntArrayRef(of_products) ||
      state.k.sym_sizes() != at::SymIntArrayRef(of_keys)) {
    fail("linear attention: the state must be {} and {}, got {} and {}", shape_of(of_products), shape_of(of_keys),
         state.kv.defined() ? shape_of(state.kv) : "none", state.k.defined() ? shape_of(state.k) : "none");
  }
}

struct LinearAttentionArguments : LinearAttentionInputs {
  template <class V>
  void visit(V& visitor) {
    visitor("q", q);
    visitor("k", k);
    visitor("v", v);
    visitor.constant("valid_keys", valid_keys);
    visitor.by_name();
    visitor("causal", causal);
    visitor("factor", factor);
    visitor("output_factor", output_factor);
    visitor("normalise", normalise);
    visitor("epsilon", epsilon);
  }
};

void check_types(const LinearAttentionInputs& in) {
  require_floating("linear attention", "q, k and v", {in.q, in.k, in.v});
  if (in.valid_keys) {
    require_type("linear attention", "valid_keys", *in.valid_keys, at::kBool);
  }
}

at::Tensor linear_attention_call(const Call<LinearAttentionArguments>& c) {
  check_types(c.in);
  return linear_attention(c.in, implementation_named(c.implementation));
}

// The arguments with a state, which is returned advanced past the keys.
struct LinearAttentionStep {
  LinearAttentionArguments in;
  OptionalTensor kv, k;  // LinearState
  template <class V>
  void visit(V& v) {
    in.visit(v);
    v("state_kv", kv);
    v("state_k", k);
  }
};
struct LinearAttentionStepResults {
  at::Tensor o, kv, k;
  template <class V>
  void visit(V& v) {
    v("o", o);
    v("state_kv", kv);
    v("state_k", k);
  }
};

LinearAttentionStepResults linear_attention_step(const LinearAttentionStep& c) {
  check_types(c.in);
  LinearState state{c.kv.value_or(at::Tensor()), c.k.value_or(at::Tensor())};
  const at::Tensor o = linear_attention(c.in, Implementation::automatic, &state);
  return {o, state.kv, state.k};
}

}  // namespace

Backends<LinearSumsInputs, LinearSums>& linear_attention_backends() {
  static Backends<LinearSumsInputs, LinearSums> all("linear_attention");
  return all;
}

at::Tensor linear_attention(const LinearAttentionInputs& in, Implementation implementation, LinearState* carried) {
  check(in);
  if (carried != nullptr) {
    check_state(*carried, in.k, in.v);
  }
  const auto* fused = linear_attention_backends().choose(implementation, in.q, {in.q, in.k, in.v, in.causal, carried});
  const auto operand = [&](const at::Tensor& t) { return fused != nullptr ? t : wide(t); };
  LinearSumsInputs all{operand(in.q), operand(in.k), operand(in.v), in.causal, carried};
  if (in.valid_keys) {
    all.k = all.k * in.valid_keys->to(all.k.scalar_type()).unsqueeze(1).unsqueeze(3);
  }
  const LinearSums sums = fused != nullptr ? fused->run(all) : linear_sums_reference(all);
  at::Tensor o = sums.values * (in.factor * in.output_factor);
  if (in.normalise) {
    const at::Tensor weight = sums.weights * in.factor + in.epsilon;
    const at::Tensor none = weight.detach().eq(0.0);
    o = (o / weight.masked_fill(none, 1.0).unsqueeze(-1)).masked_fill(none.unsqueeze(-1), 0.0);
  }
  return o.to(in.v.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define_public<Call<LinearAttentionArguments>, linear_attention_call>(library, "linear_attention");
  define_public<LinearAttentionStep, linear_attention_step>(library, "linear_attention_step");
}

}  // namespace headroom::ops
