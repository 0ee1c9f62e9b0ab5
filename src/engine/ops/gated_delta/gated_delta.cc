#include "headroom/ops/gated_delta.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/ops/backend.h"
#include "engine/ops/shapes.h"
#include "gated_delta_operator.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

Backends<GatedDeltaInputs, GatedDeltaResults>& gated_delta_backends() {
  static Backends<GatedDeltaInputs, GatedDeltaResults> all("gated_delta");
  return all;
}

// Queries or keys [B, G, T, e] for each value head.
at::Tensor per_value_head(const at::Tensor& t, const at::Tensor& v) {
  const std::int64_t heads = v.size(1) / t.size(1);
  return heads == 1 ? t : t.repeat_interleave(heads, 1);
}

at::Tensor first_state(const GatedDeltaInputs& in) {
  return in.state ? in.state->to(in.v.scalar_type())
                  : at::zeros({in.v.size(0), in.v.size(1), in.k.size(3), in.v.size(3)}, in.v.options());
}

// The equation, token by token.
GatedDeltaResults gated_delta_by_token(const GatedDeltaInputs& in) {
  const at::Tensor q = per_value_head(in.q, in.v), k = per_value_head(in.k, in.v);
  at::Tensor state = first_state(in);
  std::vector<at::Tensor> o;
  for (std::int64_t t = 0; t < in.v.size(2); ++t) {
    const auto at = [&](const at::Tensor& x) { return x.narrow(2, t, 1); };  // [B, H, 1, ..]
    state = state * at(in.log_decay).exp().unsqueeze(3);
    const at::Tensor u = at(in.beta).unsqueeze(3) * (at(in.v) - at(k).matmul(state));
    state = state + at(k).transpose(2, 3).matmul(u);
    o.push_back(at(q).matmul(state));
  }
  return {at::cat(o, 2), state};
}

// Chunks of tokens in matrix multiplications, as in kernels/cpu/attention/delta_rule.cc.
GatedDeltaResults gated_delta_by_chunk(const GatedDeltaInputs& in) {
  const at::Tensor q = per_value_head(in.q, in.v), k = per_value_head(in.k, in.v);
  at::Tensor state = first_state(in);
  std::vector<at::Tensor> o;
  for (std::int64_t begin = 0; begin < in.v.size(2); begin += kDeltaChunk) {
    const std::int64_t n = std::min(kDeltaChunk, in.v.size(2) - begin);
    const auto chunk = [&](const at::Tensor& x) { return x.narrow(2, begin, n); };
    const at::Tensor total = chunk(in.log_decay).cumsum(2), beta = chunk(in.beta).unsqueeze(3);
    const at::Tensor later = at::ones({n, n}, total.options().dtype(at::kBool)).triu(1);
    const at::Tensor decay =
        (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(later, -std::numeric_limits<double>::infinity()).exp();
    const at::Tensor from_start = total.exp().unsqueeze(3), keys = chunk(k).transpose(2, 3);
    const at::Tensor a = beta * chunk(k).matmul(keys) * decay;
    const at::Tensor right = beta * (chunk(in.v) - from_start * chunk(k).matmul(state));
    const at::Tensor u = at::linalg_solve_triangular(a, right, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
    o.push_back(from_start * chunk(q).matmul(state) + (chunk(q).matmul(keys) * decay).matmul(u));
    const at::Tensor last = total.narrow(2, n - 1, 1), to_end = (last - total).exp().unsqueeze(2);
    state = last.exp().unsqueeze(3) * state + (keys * to_end).matmul(u);
  }
  return {at::cat(o, 2), state};
}

// The inputs in one type: float64 if v is, else float32.
GatedDeltaInputs in_one_type(const GatedDeltaInputs& in) {
  const at::ScalarType type = in.v.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {in.q.to(type), in.k.to(type), in.v.to(type), in.beta.to(type), in.log_decay.to(type), in.state};
}

GatedDeltaResults run_chunks(const GatedDeltaInputs& in) {
  return gated_delta_by_chunk(in_one_type(in));
}

GatedDeltaResults run_kernels(const GatedDeltaInputs& in) {
  FusedGatedDelta::Arguments all;
  all.q = in.q;
  all.k = in.k;
  all.v = in.v;
  all.beta = in.beta;
  all.log_decay = in.log_decay;
  all.state = in.state;
  const FusedGatedDelta::Results results = call<FusedGatedDelta>(all);
  return {results.o, results.after};
}

const Registration kGatedDeltaKernels(gated_delta_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                               never_refuses<GatedDeltaInputs>,
                                                               run_kernels});
const Registration kGatedDeltaChunks(gated_delta_backends(),
                                     {{"chunks", at::kCPU, 1, any_type}, never_refuses<GatedDeltaInputs>, run_chunks});
const Registration kGatedDeltaChunksOnCuda(gated_delta_backends(), {{"chunks", at::kCUDA, 1, any_type},
                                                                    never_refuses<GatedDeltaInputs>,
                                                                    run_chunks});

void check_gated_delta(const GatedDeltaInputs& in) {
  const auto same = [](const at::Tensor& a, const at::Tensor& b, std::initializer_list<std::int64_t> axes) {
    return std::all_of(axes.begin(), axes.end(), [&](std::int64_t i) { return a.sym_size(i) == b.sym_size(i); });
  };
  const bool fits = in.q.dim() == 4 && in.k.dim() == 4 && in.v.dim() == 4 && in.beta.dim() == 3 &&
                    in.log_decay.dim() == 3 && in.q.sym_sizes() == in.k.sym_sizes() && same(in.k, in.v, {0, 2}) &&
                    in.v.sym_size(1) % in.k.sym_size(1) == 0 && same(in.v, in.beta, {0, 1, 2}) &&
                    same(in.v, in.log_decay, {0, 1, 2}) && in.v.sym_size(2) > 0;
  if (!fits) {
    fail(
        "gated delta: q and k must be [B, G, T, e], v [B, H, T, w], beta and log_decay [B, H, T] with G dividing H and "
        "T at least 1, got {}, {}, {}, {} and {}",
        shape_of(in.q), shape_of(in.k), shape_of(in.v), shape_of(in.beta), shape_of(in.log_decay));
  }
  const std::vector<c10::SymInt> state = {in.v.sym_size(0), in.v.sym_size(1), in.k.sym_size(3), in.v.sym_size(3)};
  if (in.state && in.state->sym_sizes() != at::SymIntArrayRef(state)) {
    fail("gated delta: state must be {}, got {}", shape_of(state), shape_of(*in.state));
  }
}

}  // namespace

GatedDeltaResults gated_delta(const GatedDeltaInputs& in, Implementation implementation) {
  check_gated_delta(in);
  const auto* fused = gated_delta_backends().choose(implementation, in.v, in);
  const GatedDeltaResults results = fused != nullptr ? fused->run(in) : gated_delta_by_token(in_one_type(in));
  return {results.o.to(in.v.scalar_type()), results.state.detach()};
}

}  // namespace headroom::ops
