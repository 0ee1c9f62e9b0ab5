// head_map_factors: the public operator, and the fused operator for decoding, which has no derivative.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/ops/argument_struct.h"
#include "engine/ops/backend.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/ops/head_map.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {
namespace {

struct FusedHeadMapFactors {
  static constexpr const char* kName = "head_map_factors_fused";
  struct Arguments {
    at::Tensor x;
    HeadMapWeights weights;
    template <class V>
    void visit(V& v) {
      v("x", x, "w1", weights.w1, "w2", weights.w2, "gate", weights.gate, "tanh_gelu", weights.tanh_gelu);
    }
  };
};

using FactorInputs = FusedHeadMapFactors::Arguments;

Backends<FactorInputs>& factors_backends() {
  static Backends<FactorInputs> all("head_map_factors");
  return all;
}

// Returns any of the weights, for its dtype: all weights have the dtype of the result.
const at::Tensor& a_weight(const HeadMapWeights& w) {
  return w.w1.empty() ? w.gate[0] : w.w1[0];
}

struct FactorSizes {
  std::int64_t stages, groups = 1, inner = 0, rank = 0, m = 0;  // C, I, R, m; I, R, m are 0 without low-rank maps
  std::int64_t gates = 0;                                       // H; 0 without gates

  explicit FactorSizes(const HeadMapWeights& w)
      : stages(static_cast<std::int64_t>(std::max(w.w1.size(), w.gate.size()))) {
    if (!w.w1.empty()) {
      groups = w.w1[0].size(0);
      inner = w.w1[0].size(2);
      rank = w.w2[0].size(3);
      m = w.w2[0].size(4);
    }
    gates = w.gate.empty() ? 0 : w.gate[0].size(1);
  }
  std::int64_t low_rank() const { return 2 * rank * groups * m; }  // elements of u and w
  std::int64_t width() const { return low_rank() + gates; }        // factors per stage
};

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

// Returns u and w [N, 2 R H] for the hidden activations [N, C I].
at::Tensor low_rank_factors(const at::Tensor& inner, const at::Tensor& w2, const FactorSizes& z,
                            Implementation implementation) {
  const at::Tensor by_group = w2.reshape({z.groups, z.inner, 2 * z.rank * z.m});
  const at::Tensor both =
      z.groups == 1 ? linear(inner, by_group[0], {}, implementation).unsqueeze(0)
                    : inner.unflatten(1, {z.groups, z.inner}).transpose(0, 1).matmul(by_group);  // [C, N, 2 R m]
  // [C, N, 2, R, m] to [2, N, R, C, m]
  const at::Tensor uw = both.unflatten(2, {2, z.rank, z.m}).permute({2, 1, 3, 0, 4});
  // The derivative of rsqrt at kFactorEpsilon is 5e8 in magnitude, which float16 cannot represent.
  const at::Tensor wide = uw.scalar_type() == at::kHalf ? uw[0].to(at::kFloat) : uw[0];
  const at::Tensor u = wide * elementwise(wide.square().mean(-1, /*keepdim=*/true) + kFactorEpsilon,
                                          [](const at::Tensor& some) { return some.rsqrt(); });
  return at::cat({u.to(uw.scalar_type()).flatten(1), uw[1].flatten(1)}, 1);
}

at::Tensor factors_by_matmul(const FactorInputs& in, Implementation implementation) {
  const FactorSizes z(in.weights);
  const std::int64_t inner_width = z.groups * z.inner;
  std::vector<at::Tensor> columns;  // weights that multiply x, side by side
  for (const at::Tensor& w1 : in.weights.w1) {
    columns.push_back(w1.transpose(0, 1).flatten(1));
  }
  columns.insert(columns.end(), in.weights.gate.begin(), in.weights.gate.end());
  const at::Tensor all = linear(in.x, columns.size() == 1 ? columns[0] : at::cat(columns, 1), {}, implementation);
  const std::int64_t inner_columns = static_cast<std::int64_t>(in.weights.w1.size()) * inner_width;
  const at::Tensor inner = elementwise(all.narrow(1, 0, inner_columns), [&](const at::Tensor& some) {
    return at::gelu(some, in.weights.tanh_gelu ? "tanh" : "none");
  });
  const at::Tensor gates =
      elementwise(all.narrow(1, inner_columns, static_cast<std::int64_t>(in.weights.gate.size()) * z.gates),
                  [](const at::Tensor& some) { return some.tanh(); });
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

at::Tensor fused_factors_meta(const FactorInputs& in) {
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

constexpr std::int64_t kMaxDecodeRows = 16;

float gelu_of(float x, bool by_tanh) {
  return by_tanh ? 0.5F * x * (1.0F + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)))
                 : 0.5F * x * (1.0F + std::erf(x * 0.7071067812F));
}

// Computes the factors of one token in one stage.
class StageFactors {
 public:
  StageFactors(const FactorSizes& sizes, std::int64_t d_model, bool tanh_gelu)
      : z_(sizes), d_(d_model), tanh_gelu_(tanh_gelu), inner_(sizes.inner), uw_(2 * sizes.rank * sizes.m) {}

  void low_rank(const float* x, const at::Tensor& w1, const at::Tensor& w2, float* out) {
    const std::int64_t heads = z_.groups * z_.m, columns = 2 * z_.rank * z_.m;
    for (std::int64_t group = 0; group < z_.groups; ++group) {
      kernels::gemv(x, d_, matrix_rows(w1).from(group * d_), z_.inner, inner_.data());
      for (std::int64_t i = 0; i < z_.inner; ++i) {
        inner_.data()[i] = gelu_of(inner_.data()[i], tanh_gelu_);
      }
      kernels::gemv(inner_.data(), z_.inner, matrix_rows(w2).from(group * z_.inner), columns, uw_.data());
      for (std::int64_t r = 0; r < 2 * z_.rank; ++r) {
        const float* f = uw_.data() + r * z_.m;
        const float factor = r < z_.rank ? one_over_size(f) : 1.0F;
        float* to = out + r * heads + group * z_.m;
        for (std::int64_t n = 0; n < z_.m; ++n) {
          to[n] = factor * f[n];
        }
      }
    }
  }

  void gate(const float* x, const at::Tensor& w, float* out) const {
    kernels::gemv(x, d_, matrix_rows(w), z_.gates, out);
    for (std::int64_t n = 0; n < z_.gates; ++n) {
      out[n] = std::tanh(out[n]);
    }
  }

 private:
  float one_over_size(const float* f) const {
    double squares = 0.0;
    for (std::int64_t n = 0; n < z_.m; ++n) {
      squares += static_cast<double>(f[n]) * f[n];
    }
    return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(z_.m) + kFactorEpsilon));
  }

  const FactorSizes& z_;
  std::int64_t d_;
  bool tanh_gelu_;
  kernels::Buffer inner_, uw_;
};

// One task per token and stage, so that the result does not depend on the number of threads.
at::Tensor fused_factors_cpu(const FactorInputs& in) {
  const FactorSizes z(in.weights);
  const auto by_rows = [](const std::vector<at::Tensor>& weights) {
    return transformed(
        weights, [&](const at::Tensor& w) { return w.contiguous().flatten(std::min<std::int64_t>(w.dim() - 1, 2)); });
  };
  const std::vector<at::Tensor> w1 = by_rows(in.weights.w1), w2 = by_rows(in.weights.w2),
                                gate = by_rows(in.weights.gate);
  const at::Tensor x = in.x.to(at::kFloat).contiguous();
  const at::Tensor y = at::empty({x.size(0), z.stages * z.width()}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.size(0) * z.stages, 1, [&](std::int64_t begin, std::int64_t end) {
    StageFactors factors(z, x.size(1), in.weights.tanh_gelu);
    for (std::int64_t i = begin; i < end; ++i) {
      const float* token = from + i / z.stages * x.size(1);
      const auto stage = static_cast<std::size_t>(i % z.stages);
      if (!w1.empty()) {
        factors.low_rank(token, w1[stage], w2[stage], to + i * z.width());
      }
      if (!gate.empty()) {
        factors.gate(token, gate[stage], to + i * z.width() + z.low_rank());
      }
    }
  });
  return y.to(a_weight(in.weights).scalar_type());
}

bool wants_gradient(const FactorInputs& in) {
  const std::vector<at::Tensor> all = slots(in);
  const auto forward_mode = [](const at::Tensor& t) { return t._fw_grad(/*level=*/0).defined(); };
  return (at::GradMode::is_enabled() &&
          std::ranges::any_of(all, [](const at::Tensor& t) { return t.requires_grad(); })) ||
         std::ranges::any_of(all, forward_mode);
}

std::string factors_refusal(const FactorInputs& in) {
  const std::optional<std::int64_t> rows = in.x.sym_size(0).maybe_as_int();
  if (!rows || *rows > kMaxDecodeRows) {
    return fmt::format("more than {} rows", kMaxDecodeRows);
  }
  if (ManyRows::active()) {
    return "the kernels for many rows are needed";
  }
  return wants_gradient(in) ? "a gradient is needed" : "";
}

at::Tensor run_fused_factors(const FactorInputs& in) {
  static const c10::OperatorHandle kOperator = find_operator(FusedHeadMapFactors::kName);
  return call_boxed<Single>(kOperator, in).result;
}

const Registration kFactorsOnCpu(factors_backends(),
                                 {{"few_rows", at::kCPU, 0, float32_or_bfloat16}, factors_refusal, run_fused_factors});

}  // namespace

at::Tensor head_map_factors(const at::Tensor& x, const HeadMapWeights& weights, Implementation implementation) {
  const FactorInputs in{x, weights};
  check_factors(in);
  const auto* few = factors_backends().choose_internal(implementation, a_weight(weights), in);
  return few != nullptr ? few->run(in) : factors_by_matmul(in, implementation);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def(schema_of<FactorInputs, at::Tensor>(FusedHeadMapFactors::kName).c_str());
  implement<FusedHeadMapFactors, fused_factors_meta>(library, c10::DispatchKey::Meta);
  implement<FusedHeadMapFactors, fused_factors_cpu>(library, c10::DispatchKey::CPU);
  define_public<Call<FactorInputs>, factors_call>(library, "head_map_factors");
}

}  // namespace headroom::ops
