#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/kernels/cpu/products/buffer.h"
#include "engine/kernels/cpu/products/vector_product.h"
#include "engine/ops/operator.h"
#include "factors.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kFewRows = 16;

float gelu_of(float x, bool by_tanh) {
  return by_tanh ? 0.5F * x * (1.0F + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)))
                 : 0.5F * x * (1.0F + std::erf(x * 0.7071067812F));
}

// The factors of one token in one stage.
template <class T>
class StageFactors {
 public:
  StageFactors(const FactorSizes& sizes, std::int64_t d_model, bool tanh_gelu)
      : z_(sizes), d_(d_model), tanh_gelu_(tanh_gelu), inner_(sizes.inner), uw_(2 * sizes.rank * sizes.m) {}

  void low_rank(const float* x, const at::Tensor& w1, const at::Tensor& w2, float* out) {
    const std::int64_t heads = z_.groups * z_.m, columns = 2 * z_.rank * z_.m;
    for (std::int64_t group = 0; group < z_.groups; ++group) {
      kernels::vector_times_rows(x, d_, rows_of(w1, group * d_, z_.inner), 0, z_.inner, inner_.data());
      for (std::int64_t i = 0; i < z_.inner; ++i) {
        inner_.data()[i] = gelu_of(inner_.data()[i], tanh_gelu_);
      }
      kernels::vector_times_rows(inner_.data(), z_.inner, rows_of(w2, group * z_.inner, columns), 0, columns,
                                 uw_.data());
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
    kernels::vector_times_rows(x, d_, rows_of(w, 0, z_.gates), 0, z_.gates, out);
    for (std::int64_t n = 0; n < z_.gates; ++n) {
      out[n] = std::tanh(out[n]);
    }
  }

 private:
  static kernels::Strided<const T> rows_of(const at::Tensor& w, std::int64_t first, std::int64_t columns) {
    return {w.const_data_ptr<T>() + first * columns, columns};
  }
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

// A stage of a token is one thread's work, so that threads do not change its sums.
template <class T>
at::Tensor few_factors(const FewFactors::Arguments& in) {
  const FactorSizes z(in.weights);
  const auto by_rows = [](const std::vector<at::Tensor>& weights) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& w : weights) {
      all.push_back(w.contiguous());
    }
    return all;
  };
  const std::vector<at::Tensor> w1 = by_rows(in.weights.w1), w2 = by_rows(in.weights.w2),
                                gate = by_rows(in.weights.gate);
  const at::Tensor x = in.x.to(at::kFloat).contiguous();
  const at::Tensor y = at::empty({x.size(0), z.stages * z.width()}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.size(0) * z.stages, 1, [&](std::int64_t begin, std::int64_t end) {
    StageFactors<T> factors(z, x.size(1), in.weights.tanh_gelu);
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

at::Tensor few_factors_cpu(const FewFactors::Arguments& in) {
  return a_weight(in.weights).scalar_type() == at::kFloat ? few_factors<float>(in) : few_factors<kernels::BFloat16>(in);
}

bool wants_gradient(const FewFactors::Arguments& in) {
  const std::vector<at::Tensor> all = slots(in);
  return at::GradMode::is_enabled() &&
         std::any_of(all.begin(), all.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

std::string factors_refusal(const FewFactors::Arguments& in) {
  const std::optional<std::int64_t> rows = in.x.sym_size(0).maybe_as_int();
  if (!rows || *rows > kFewRows) {
    return "there are many rows";
  }
  return wants_gradient(in) ? "a gradient is wanted" : "";
}

at::Tensor run_few_factors(const FewFactors::Arguments& in) {
  static const c10::OperatorHandle kOperator = find_operator(FewFactors::kName);
  return call_boxed<Single>(kOperator, in).result;
}

[[maybe_unused]] const bool kFactorsOnCpu =
    factors_backends().add({{"few_rows", at::kCPU, 0, float32_or_bfloat16}, factors_refusal, run_few_factors});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl(FewFactors::kName, kernel<FewFactors::Arguments, few_factors_cpu>());
}

}  // namespace headroom::ops
