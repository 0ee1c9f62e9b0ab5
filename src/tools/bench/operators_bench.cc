// Single operators at the sizes of their tables of cases, against their references and PyTorch; attention with composed
// heads and mixtures of keys also against plain attention.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "engine/ops/optimizers/optimizer_cases.h"
#include "engine/ops/attention/attention_cases.h"
#include "engine/ops/operator_cases.h"
#include "engine/ops/expert_linear/expert_linear_cases.h"
#include "engine/ops/linear_attention/linear_attention_cases.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy_cases.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/linear.h"
#include "timing.h"

namespace headroom::bench {
namespace {

ops::Setting setting_of(const BenchOptions& options) {
  const at::TensorOptions type = type_of(options);
  return {c10::typeMetaToScalarType(type.dtype()), type.device()};
}

// Forward and backward pass with gradients of all leaves.
Work forward_backward(ops::Problem problem, Implementation implementation) {
  for (at::Tensor& leaf : problem.leaves) {
    leaf = leaf.detach().requires_grad_(true);
  }
  const at::Tensor weight = at::randn_like(problem.run(problem.leaves, implementation).detach());
  return [problem = std::move(problem), implementation, weight] {
    torch::autograd::grad({problem.run(problem.leaves, implementation)}, problem.leaves, {weight});
  };
}

// The same with the fused implementation; empty if there is none for the problem on this device.
Work fused_forward_backward(const ops::Problem& problem) {
  try {
    return forward_backward(problem, Implementation::fused);
  } catch (const ops::NoFusedError& /*why*/) {
    return {};
  }
}

Row operator_row(std::string name, double seconds, double reference, double flops, const BenchOptions& options) {
  if (std::isnan(seconds)) {
    return {.name = std::move(name), .seconds = seconds};
  }
  const double gflops = flops / seconds * 1e-9;
  return {.name = std::move(name),
          .seconds = seconds,
          .gflops = gflops,
          .ratio_to_reference = reference / seconds,
          .fraction_of_limit = gflops / machine_limits(options).product_gflops};
}

void attention_rows(const ops::AttentionCase& z, const BenchOptions& options, std::vector<Row>& rows) {
  const ops::Problem problem = z.problem(setting_of(options));
  std::vector<Work> work = {forward_backward(problem, Implementation::reference), fused_forward_backward(problem)};
  if (!z.relative) {
    const at::TensorOptions device = problem.leaves[0].options();
    const std::optional<at::Tensor> mask =
        z.t == z.s ? std::nullopt : std::optional(at::ones({z.t, z.s}, device.dtype(at::kBool)).tril_(z.s - z.t));
    const double scale = 1.0 / std::sqrt(static_cast<double>(z.e));
    const auto torch = [=, whole = z.t == z.s](const std::vector<at::Tensor>& x,
                                               Implementation /*PyTorch has its own*/) {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0.0, whole, scale);
    };
    work.push_back(forward_backward({problem.leaves, torch}, Implementation::automatic));
  }
  const std::vector<double> times = medians_in_turn(work, options);
  // Visible pairs only: 2 matmuls forward, 5 backward (and 1 + 3 for positions), 2 operations per MAC.
  const double pairs = static_cast<double>(z.b * z.h) * static_cast<double>(z.t) *
                       (static_cast<double>(z.s) - 0.5 * static_cast<double>(z.t - 1));
  const double flops = 2.0 * pairs * static_cast<double>(z.e) * (z.relative ? 11.0 : 7.0);
  const std::string name = fmt::format("B{} H{} T{} S{} e{}{}", z.b, z.h, z.t, z.s, z.e, z.relative ? " relative" : "");
  rows.push_back(operator_row(name + ": reference", times[0], times[0], flops, options));
  rows.push_back(operator_row(name + ": fused", times[1], times[0], flops, options));
  if (times.size() > 2) {
    rows.push_back(operator_row(name + ": PyTorch SDPA", times[2], times[0], flops, options));
  }
}

}  // namespace

std::vector<Row> attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& z : ops::attention_cases(ops::Role::timed)) {
    if (!z.composed && !z.mixture) {
      attention_rows(z, options, rows);
    }
  }
  return rows;
}

std::vector<Row> expert_linear(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::ExpertLinearCase& z : ops::expert_linear_cases(ops::Role::timed)) {
    const ops::Problem problem = z.problem(setting_of(options));
    const ops::Draw draw{setting_of(options)};
    const ops::Problem dense{{draw.activation({z.n * z.heads * z.choices, z.d_in}), draw.activation({z.d_in, z.d_out})},
                             [](const std::vector<at::Tensor>& x, Implementation /*PyTorch has its own*/) {
                               return ops::linear(x[0], x[1]);
                             }};
    const std::vector<double> times =
        medians_in_turn({forward_backward(problem, Implementation::reference), fused_forward_backward(problem),
                         forward_backward(dense, Implementation::automatic)},
                        options);
    const double flops = 6.0 * static_cast<double>(z.n * z.heads * z.choices * z.d_in * z.d_out);
    rows.push_back(operator_row(fmt::format("{}: reference", z.label), times[0], times[0], flops, options));
    rows.push_back(operator_row(fmt::format("{}: fused", z.label), times[1], times[0], flops, options));
    rows.push_back(operator_row(fmt::format("{}: dense product", z.label), times[2], times[0], flops, options));
  }
  return rows;
}

std::vector<Row> cross_entropy(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::CrossEntropyCase& z : ops::cross_entropy_cases(ops::Role::timed)) {
    const ops::Problem problem = z.problem(setting_of(options));
    const std::vector<double> times = medians_in_turn(
        {forward_backward(problem, Implementation::reference), fused_forward_backward(problem)}, options);
    const double flops = 6.0 * static_cast<double>(z.n * z.d * z.v);
    const std::string name = fmt::format("N{} d{} V{}", z.n, z.d, z.v);
    rows.push_back(operator_row(name + ": reference", times[0], times[0], flops, options));
    rows.push_back(operator_row(name + ": fused", times[1], times[0], flops, options));
  }
  return rows;
}

std::vector<Row> adamw(const BenchOptions& options) {
  const at::Device device(options.device);
  std::vector<Row> rows;
  for (const ops::AdamWCase& z : ops::adamw_cases(ops::Role::timed)) {
    const ops::AdamWLists all = z.lists({at::kFloat, device});
    const auto step_with = [&](Implementation impl) {
      return [&, impl] {
        ops::adamw_step(all.parameters, all.gradients, all.m, all.v, 10,
                        {.gradient_scale = 0.5, .implementation = impl});
      };
    };
    const std::vector<double> times =
        medians_in_turn({step_with(Implementation::reference), step_with(Implementation::fused)}, options);
    const auto n = static_cast<double>(all.parameters[0].numel());
    for (const auto& [name, seconds] : {std::pair{"reference", times[0]}, {"fused", times[1]}}) {
      const double bytes = n * 4.0 * 7.0;  // reads p, g, m, v, writes p, m, v
      rows.push_back({.name = fmt::format("{:.1f}M numbers: {}", n * 1e-6, name),
                      .seconds = seconds,
                      .ratio_to_reference = times[0] / seconds,
                      .fraction_of_limit = bytes / seconds * 1e-9 / machine_limits("fp32", device).bandwidth_gb});
    }
  }
  return rows;
}

namespace {

std::string name_of(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t e) {
  return fmt::format("B{} H{} T{} e{}", b, h, t, e);
}

Work fused_attention(const ops::AttentionCase& z, const BenchOptions& options) {
  return fused_forward_backward(z.problem(setting_of(options)));
}

// Without a count of operations.
Row timed_row(const std::string& name, double seconds, double reference) {
  return {.name = name,
          .seconds = seconds,
          .ratio_to_reference = std::isnan(seconds) ? std::nullopt : std::optional(reference / seconds)};
}

}  // namespace

std::vector<Row> composition(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& z : ops::attention_cases(ops::Role::timed)) {
    if (!z.composed) {
      continue;
    }
    ops::AttentionCase plain = z;
    plain.composed.reset();
    const ops::Problem composed = z.problem(setting_of(options));
    const std::vector<double> times =
        medians_in_turn({forward_backward(composed, Implementation::reference), fused_forward_backward(composed),
                         fused_attention(plain, options)},
                        options);
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    rows.push_back(timed_row(name + ": reference", times[0], times[0]));
    rows.push_back(timed_row(name + ": fused", times[1], times[0]));
    rows.push_back(timed_row(name + ": fused, not composed", times[2], times[0]));
  }
  return rows;
}

// Two keys per position with half the heads against plain attention with all heads.
std::vector<Row> mixture(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& half : ops::attention_cases(ops::Role::timed)) {
    if (!half.mixture) {
      continue;
    }
    ops::AttentionCase shifted_keys = half, all = half;
    shifted_keys.mixture->keys = ops::MixtureCase::shifted;
    all.mixture.reset();
    all.h = all.g = 2 * half.h;
    const ops::Problem own = half.problem(setting_of(options)), shifted = shifted_keys.problem(setting_of(options));
    const std::vector<double> times =
        medians_in_turn({forward_backward(own, Implementation::reference), fused_forward_backward(own),
                         forward_backward(shifted, Implementation::reference), fused_forward_backward(shifted),
                         fused_attention(all, options)},
                        options);
    const std::string name = name_of(half.b, half.h, half.t, half.e);
    rows.push_back(timed_row(name + " own keys: reference", times[0], times[0]));
    rows.push_back(timed_row(name + " own keys: fused", times[1], times[0]));
    rows.push_back(timed_row(name + " shifted keys: reference", times[2], times[2]));
    rows.push_back(timed_row(name + " shifted keys: fused", times[3], times[2]));
    rows.push_back(timed_row(name_of(all.b, all.h, all.t, all.e) + " one key: fused", times[4], times[0]));
  }
  return rows;
}

std::vector<Row> linear_attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::LinearAttentionCase& z : ops::linear_attention_cases(ops::Role::timed)) {
    const ops::Problem linear = z.problem(setting_of(options));
    const ops::AttentionCase softmax{z.b, z.h, z.g, z.t, z.s, z.e};
    const std::vector<double> times =
        medians_in_turn({forward_backward(linear, Implementation::reference), fused_forward_backward(linear),
                         fused_attention(softmax, options)},
                        options);
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    rows.push_back(timed_row(name + ": reference", times[0], times[0]));
    rows.push_back(timed_row(name + ": fused", times[1], times[0]));
    rows.push_back(timed_row(name + ": softmax attention, fused", times[2], times[0]));
  }
  return rows;
}

}  // namespace headroom::bench
