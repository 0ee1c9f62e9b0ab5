// Benchmarks of single operators, at the sizes in their case tables, against their references and PyTorch. Attention
// with composed heads and with mixtures of keys is also compared with plain attention.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "engine/ops/attention/attention_cases.h"
#include "engine/ops/expert_linear/expert_linear_cases.h"
#include "engine/ops/gated_delta/gated_delta_cases.h"
#include "engine/ops/linear_attention/linear_attention_cases.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy_cases.h"
#include "engine/ops/operator_cases.h"
#include "engine/ops/optimizers/optimizer_cases.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/linear.h"
#include "timing.h"

namespace headroom::bench {
namespace {

ops::Setting setting_of(const BenchOptions& options) {
  const at::TensorOptions type = type_of(options);
  return {c10::typeMetaToScalarType(type.dtype()), type.device()};
}

// Times a forward and backward pass with gradients of all leaves.
Work forward_backward(ops::Problem problem, Implementation implementation) {
  for (at::Tensor& leaf : problem.leaves) {
    leaf = leaf.detach().requires_grad_(true);
  }
  const at::Tensor weight = at::randn_like(problem.run(problem.leaves, implementation).detach());
  return [problem = std::move(problem), implementation, weight] {
    torch::autograd::grad({problem.run(problem.leaves, implementation)}, problem.leaves, {weight});
  };
}

// Like forward_backward() with the fused implementation; empty if there is none for the problem on this device.
Work fused_forward_backward(const ops::Problem& problem) {
  try {
    return forward_backward(problem, Implementation::fused);
  } catch (const ops::NoFusedError& /*why*/) {
    return {};
  }
}

std::vector<Contender> reference_and_fused(const std::string& name, const ops::Problem& problem, double flops = 0.0) {
  return {{.name = name + ": reference", .work = forward_backward(problem, Implementation::reference), .flops = flops},
          {.name = name + ": fused", .work = fused_forward_backward(problem), .flops = flops}};
}

void append(std::vector<Row>& rows, const std::vector<Row>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

void attention_rows(const ops::AttentionCase& z, const BenchOptions& options, std::vector<Row>& rows) {
  const ops::Problem problem = z.problem(setting_of(options));
  // Counts visible pairs only: 2 matmuls forward, 5 backward (and 1 + 3 for positions), 2 operations per MAC.
  const double pairs = static_cast<double>(z.b * z.h) * static_cast<double>(z.t) *
                       (static_cast<double>(z.s) - 0.5 * static_cast<double>(z.t - 1));
  const double flops = 2.0 * pairs * static_cast<double>(z.e) * (z.relative ? 11.0 : 7.0);
  const std::string name = fmt::format("B{} H{} T{} S{} e{}{}", z.b, z.h, z.t, z.s, z.e, z.relative ? " relative" : "");
  std::vector<Contender> contenders = reference_and_fused(name, problem, flops);
  if (!z.relative) {
    const at::TensorOptions device = problem.leaves[0].options();
    const std::optional<at::Tensor> mask =
        z.t == z.s ? std::nullopt : std::optional(at::ones({z.t, z.s}, device.dtype(at::kBool)).tril_(z.s - z.t));
    const double scale = 1.0 / std::sqrt(static_cast<double>(z.e));
    const auto torch = [=, whole = z.t == z.s](const std::vector<at::Tensor>& x, Implementation /*unused*/) {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0.0, whole, scale);
    };
    contenders.push_back({.name = name + ": PyTorch SDPA",
                          .work = forward_backward({problem.leaves, torch}, Implementation::automatic),
                          .flops = flops});
  }
  append(rows, compare(contenders, options));
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
    const ops::Problem dense{
        {draw.activation({z.n * z.heads * z.choices, z.d_in}), draw.activation({z.d_in, z.d_out})},
        [](const std::vector<at::Tensor>& x, Implementation /*unused*/) { return ops::linear(x[0], x[1]); }};
    const double flops = 6.0 * static_cast<double>(z.n * z.heads * z.choices * z.d_in * z.d_out);
    const std::string name = fmt::format("{}", z.label);
    std::vector<Contender> contenders = reference_and_fused(name, problem, flops);
    contenders.push_back(
        {.name = name + ": dense product", .work = forward_backward(dense, Implementation::automatic), .flops = flops});
    append(rows, compare(contenders, options));
  }
  return rows;
}

std::vector<Row> cross_entropy(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::CrossEntropyCase& z : ops::cross_entropy_cases(ops::Role::timed)) {
    const ops::Problem problem = z.problem(setting_of(options));
    const std::string name = fmt::format("N{} d{} V{}", z.n, z.d, z.v);
    append(rows, compare(reference_and_fused(name, problem, 6.0 * static_cast<double>(z.n * z.d * z.v)), options));
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
    const auto n = static_cast<double>(all.parameters[0].numel());
    const std::string name = fmt::format("{:.1f}M numbers", n * 1e-6);
    for (Row& row : compare({{.name = name + ": reference", .work = step_with(Implementation::reference)},
                             {.name = name + ": fused", .work = step_with(Implementation::fused)}},
                            options)) {
      const double bytes = n * 4.0 * 7.0;  // reads p, g, m, v, writes p, m, v
      row.fraction_of_limit = bytes / row.seconds * 1e-9 / machine_limits("fp32", device).bandwidth_gb;
      rows.push_back(std::move(row));
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

}  // namespace

std::vector<Row> composition(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& z : ops::attention_cases(ops::Role::timed)) {
    if (!z.composed) {
      continue;
    }
    ops::AttentionCase plain = z;
    plain.composed.reset();
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    std::vector<Contender> contenders = reference_and_fused(name, z.problem(setting_of(options)));
    contenders.push_back({.name = name + ": fused, not composed", .work = fused_attention(plain, options)});
    append(rows, compare(contenders, options));
  }
  return rows;
}

// Compares two keys per position with half the heads against plain attention with all heads.
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
    const std::string name = name_of(half.b, half.h, half.t, half.e);
    std::vector<Contender> contenders = reference_and_fused(name + " own keys", half.problem(setting_of(options)));
    for (Contender& shifted : reference_and_fused(name + " shifted keys", shifted_keys.problem(setting_of(options)))) {
      shifted.reference = 2;
      contenders.push_back(std::move(shifted));
    }
    contenders.push_back(
        {.name = name_of(all.b, all.h, all.t, all.e) + " one key: fused", .work = fused_attention(all, options)});
    append(rows, compare(contenders, options));
  }
  return rows;
}

std::vector<Row> linear_attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::LinearAttentionCase& z : ops::linear_attention_cases(ops::Role::timed)) {
    const ops::AttentionCase softmax{z.b, z.h, z.g, z.t, z.s, z.e};
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    std::vector<Contender> contenders = reference_and_fused(name, z.problem(setting_of(options)));
    contenders.push_back({.name = name + ": softmax attention, fused", .work = fused_attention(softmax, options)});
    append(rows, compare(contenders, options));
  }
  for (const ops::GatedDeltaCase& z : ops::gated_delta_cases(ops::Role::timed)) {
    const ops::LinearAttentionCase linear{
        z.b, z.h, z.g, z.t, z.t, z.e, true, true, false, ops::Layout::dense, ops::Role::timed};
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    append(rows, compare({{.name = name + ": linear attention, fused",
                           .work = fused_forward_backward(linear.problem(setting_of(options)))},
                          {.name = name + ": gated delta rule, fused",
                           .work = fused_forward_backward(z.problem(setting_of(options)))}},
                         options));
  }
  return rows;
}

}  // namespace headroom::bench
