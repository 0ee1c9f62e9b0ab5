#include <algorithm>
#include <vector>

#include "headroom/core/implementation.h"
#include "sums.h"

namespace headroom::ops {
namespace {

void remember(LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor kv = k.transpose(2, 3).matmul(v), sum = k.sum(2);
  state.kv = state.kv.defined() ? state.kv + kv : kv;
  state.k = state.k.defined() ? state.k + sum : sum;
}

// Sums over keys of a_ij v_j and of a_ij.
struct GroupedSums {
  at::Tensor values;   // [B, G, h, t, w], h query heads a key head
  at::Tensor weights;  // [B, G, h, t]
};

GroupedSums through_state(const at::Tensor& q, const LinearState& state) {
  return {q.matmul(state.kv.unsqueeze(2)), (q * state.k.unsqueeze(2).unsqueeze(3)).sum(-1)};
}

GroupedSums causal_chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearState& state) {
  const at::Tensor a = q.matmul(k.unsqueeze(2).transpose(3, 4)).tril();
  GroupedSums sums{a.matmul(v.unsqueeze(2)), a.sum(-1)};
  if (state.kv.defined()) {
    const GroupedSums past = through_state(q, state);
    sums = {sums.values + past.values, sums.weights + past.weights};
  }
  return sums;
}

// `last` says whether somebody wants the state after the last chunk.
GroupedSums causal_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, LinearState& state, bool last) {
  const std::int64_t t = q.size(3), before = k.size(2) - t;
  if (before > 0) {
    remember(state, k.narrow(2, 0, before), v.narrow(2, 0, before));
  }
  std::vector<at::Tensor> values, weights;
  for (std::int64_t begin = 0; begin < t; begin += kLinearChunk) {
    const std::int64_t n = std::min(kLinearChunk, t - begin);
    const at::Tensor kc = k.narrow(2, before + begin, n), vc = v.narrow(2, before + begin, n);
    const GroupedSums sums = causal_chunk(q.narrow(3, begin, n), kc, vc, state);
    values.push_back(sums.values);
    weights.push_back(sums.weights);
    if (last || begin + n < t) {
      remember(state, kc, vc);
    }
  }
  return {at::cat(values, 3), at::cat(weights, 3)};
}

}  // namespace

LinearSums linear_sums_reference(const LinearSumsInputs& in) {
  const at::Tensor q = in.q.unflatten(1, {in.k.size(1), -1});
  LinearState own;
  LinearState& state = in.carried != nullptr ? *in.carried : own;
  GroupedSums sums;
  if (in.causal) {
    sums = causal_sums(q, in.k, in.v, state, in.carried != nullptr);
  } else {
    remember(state, in.k, in.v);
    sums = through_state(q, state);
  }
  return {sums.values.flatten(1, 2), sums.weights.flatten(1, 2)};
}

}  // namespace headroom::ops
