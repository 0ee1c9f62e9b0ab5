#include "factors.h"

#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {
namespace {

using FactorInputs = FewFactors::Arguments;

void check_weights(const std::vector<at::Tensor>& all, const char* name, const std::vector<c10::SymInt>& expected) {
  for (const at::Tensor& w : all) {
    if (w.sym_sizes() != at::SymIntArrayRef(expected)) {
      fail("head map factors: {} must be {}, got {}", name, shape_of(expected), shape_of(w));
    }
  }
}

void check_factors(const FactorInputs& in) {
  const auto& [w1, w2, gate, tanh_gelu] = in.weights;
  if (in.x.dim() != 2 || (w1.empty() && gate.empty()) || w1.size() != w2.size() ||
      (!w1.empty() && !gate.empty() && w1.size() != gate.size())) {
    fail("head map factors: x must be [N, d] and all stages have the same weights, got x {} and {} w1, {} w2, {} gates",
         shape_of(in.x), w1.size(), w2.size(), gate.size());
  }
  const bool axes = (w1.empty() || (w1[0].dim() == 3 && w2[0].dim() == 5)) && (gate.empty() || gate[0].dim() == 2);
  if (!axes) {
    fail("head map factors: w1 must be [C, d, I], w2 [C, I, 2, R, m] and gates [d, H], got {}, {} and {}",
         w1.empty() ? "-" : shape_of(w1[0]), w2.empty() ? "-" : shape_of(w2[0]),
         gate.empty() ? "-" : shape_of(gate[0]));
  }
  const FactorSizes z(in.weights);
  const c10::SymInt d = in.x.sym_size(1);
  check_weights(w1, "w1", {z.groups, d, z.inner});
  check_weights(w2, "w2", {z.groups, z.inner, 2, z.rank, z.m});
  check_weights(gate, "gates", {d, w1.empty() ? z.gates : z.groups * z.m});
}

// u and w [N, 2 R H] of the numbers between the products, [N, C I].
at::Tensor low_rank_factors(const at::Tensor& inner, const at::Tensor& w2, const FactorSizes& z,
                            Implementation implementation) {
  const at::Tensor by_group = w2.reshape({z.groups, z.inner, 2 * z.rank * z.m});
  const at::Tensor both =
      z.groups == 1 ? linear(inner, by_group[0], {}, implementation).unsqueeze(0)
                    : inner.unflatten(1, {z.groups, z.inner}).transpose(0, 1).matmul(by_group);  // [C, N, 2 R m]
  // [C, N, 2, R, m] to [2, N, R, C, m]
  const at::Tensor uw = both.unflatten(2, {2, z.rank, z.m}).permute({2, 1, 3, 0, 4});
  const at::Tensor u = uw[0] * (uw[0].square().mean(-1, /*keepdim=*/true) + kFactorEpsilon).rsqrt();
  return at::cat({u.flatten(1), uw[1].flatten(1)}, 1);
}

at::Tensor factors_by_products(const FactorInputs& in, Implementation implementation) {
  const FactorSizes z(in.weights);
  const std::int64_t inner_width = z.groups * z.inner;
  std::vector<at::Tensor> columns;  // of everything that multiplies x
  for (const at::Tensor& w1 : in.weights.w1) {
    columns.push_back(w1.transpose(0, 1).flatten(1));
  }
  columns.insert(columns.end(), in.weights.gate.begin(), in.weights.gate.end());
  const at::Tensor all = linear(in.x, columns.size() == 1 ? columns[0] : at::cat(columns, 1), {}, implementation);
  const std::int64_t inner_columns = static_cast<std::int64_t>(in.weights.w1.size()) * inner_width;
  const at::Tensor inner = at::gelu(all.narrow(1, 0, inner_columns), in.weights.tanh_gelu ? "tanh" : "none");
  const at::Tensor gates =
      all.narrow(1, inner_columns, static_cast<std::int64_t>(in.weights.gate.size()) * z.gates).tanh();
  std::vector<at::Tensor> parts;
  for (std::int64_t stage = 0; stage < z.stages; ++stage) {
    if (!in.weights.w1.empty()) {
      parts.push_back(low_rank_factors(inner.narrow(1, stage * inner_width, inner_width),
                                       in.weights.w2[static_cast<std::size_t>(stage)], z, implementation));
    }
    if (z.gates > 0) {
      parts.push_back(gates.narrow(1, stage * z.gates, z.gates));
    }
  }
  return at::cat(parts, 1);
}

at::Tensor few_factors_meta(const FactorInputs& in) {
  const FactorSizes z(in.weights);
  return at::empty_symint({in.x.sym_size(0), z.stages * z.width()}, a_weight(in.weights).options());
}

at::Tensor factors_call(const Call<FactorInputs>& c) {
  const std::vector<at::Tensor> all = slots(c.in);  // x, then the weights
  require_floating("head map factors", "x", {c.in.x});
  if (all.size() > 1) {
    require_floating("head map factors", "w1, w2 and gate", at::TensorList(all).slice(1));
  }
  return head_map_factors(c.in.x, c.in.weights, implementation_named(c.implementation));
}

}  // namespace

Backends<FactorInputs>& factors_backends() {
  static Backends<FactorInputs> all("head_map_factors");
  return all;
}

at::Tensor head_map_factors(const at::Tensor& x, const HeadMapWeights& weights, Implementation implementation) {
  const FactorInputs in{x, weights};
  check_factors(in);
  const auto* few = factors_backends().choose_inside(implementation, a_weight(weights), in);
  return few != nullptr ? few->run(in) : factors_by_products(in, implementation);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def(schema_of<FactorInputs, at::Tensor>(FewFactors::kName).c_str());
  offer<Call<FactorInputs>, factors_call>(library, "head_map_factors");
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl(FewFactors::kName, kernel<FactorInputs, few_factors_meta>());
}

}  // namespace headroom::ops
