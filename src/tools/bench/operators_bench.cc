// Benchmarks of single operators against their references, PyTorch's attention and a dense matrix multiplication.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "attention_sizes.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"
#include "headroom/ops/linear_cross_entropy.h"
#include "timing.h"

namespace headroom::bench {
namespace {

// What run() computes from tensors like `leaves` is timed forward and backward, with gradients of all leaves.
struct Problem {
  std::vector<at::Tensor> leaves;
  std::function<at::Tensor(const std::vector<at::Tensor>& leaves, Implementation implementation)> run;
};

Work forward_backward(Problem problem, Implementation implementation) {
  for (at::Tensor& leaf : problem.leaves) {
    leaf = leaf.detach().requires_grad_(true);
  }
  const at::Tensor weight = at::randn_like(problem.run(problem.leaves, implementation).detach());
  return [problem = std::move(problem), implementation, weight] {
    torch::autograd::grad({problem.run(problem.leaves, implementation)}, problem.leaves, {weight});
  };
}

// Like forward_backward() with the fused implementation; empty if there is none for the problem on this device.
Work fused_forward_backward(const Problem& problem) {
  try {
    return forward_backward(problem, Implementation::fused);
  } catch (const ops::NoFusedError& /*why*/) {
    return {};
  }
}

std::vector<Contender> reference_and_fused(const std::string& name, const Problem& problem, double flops) {
  return {{.name = name + ": reference", .work = forward_backward(problem, Implementation::reference), .flops = flops},
          {.name = name + ": fused", .work = fused_forward_backward(problem), .flops = flops}};
}

void append(std::vector<Row>& rows, const std::vector<Row>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

// Formulas with what they read; the last tensor of the problem if it has a gradient.
struct FormulaRow {
  const char* name;
  std::string score, mask;
  enum Reads { nothing, head, table, documents } reads = nothing;
};
const std::array<FormulaRow, 5> kFormulas = {
    {{"formula s", "s", ""},
     {"soft cap", "20 * tanh(s / 20)", ""},
     {"ALiBi", "s - learned0 * (i - j)", "", FormulaRow::head},
     {"table of distances", "s + table0[i - j]", "", FormulaRow::table},
     {"mask of documents", "s", "table0[i] == table0[j]", FormulaRow::documents}}};

Contender formula_contender(const AttentionSize& z, const FormulaRow& row, Problem problem, const std::string& name,
                            double flops) {
  constexpr std::int64_t kDistances = 128, kDocument = 200;
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).device(problem.leaves[0].device());
  if (row.reads == FormulaRow::head || row.reads == FormulaRow::table) {
    problem.leaves.push_back(row.reads == FormulaRow::head ? at::rand({z.h}, floats)
                                                           : at::randn({1, z.h, kDistances}, floats));
  }
  const at::Tensor documents = at::arange(z.s, floats).div(kDocument, "floor").view({1, 1, z.s});
  problem.run = [=](const std::vector<at::Tensor>& x, Implementation implementation) {
    ops::AttentionInputs in{.q = x[0], .k = x[1], .v = x[2], .scale = 1.0 / std::sqrt(static_cast<double>(z.e))};
    in.formula.score = row.score;
    in.formula.mask = row.mask;
    if (row.reads == FormulaRow::head) {
      in.formula.learned = {x[3]};
    } else if (row.reads != FormulaRow::nothing) {
      in.formula.tables = {row.reads == FormulaRow::table ? x[3] : documents};
    }
    return ops::attention(in, implementation);
  };
  return {.name = fmt::format("{}: {}", name, row.name),
          .work = fused_forward_backward(problem),
          .flops = flops,
          .reference = 1};
}

std::vector<Contender> attention_contenders(const AttentionSize& z, bool relative, const BenchOptions& options) {
  const at::TensorOptions type = type_of(options);
  const double scale = 1.0 / std::sqrt(static_cast<double>(z.e));
  Problem problem{{at::randn({z.b, z.h, z.t, z.e}, type), at::randn({z.b, z.h, z.s, z.e}, type),
                   at::randn({z.b, z.h, z.s, z.e}, type)},
                  [scale](const std::vector<at::Tensor>& x, Implementation implementation) {
                    ops::AttentionInputs in{.q = x[0], .k = x[1], .v = x[2], .scale = scale};
                    if (x.size() > 3) {
                      in.q_position = x[3];
                      in.r = x[4];
                    }
                    return ops::attention(in, implementation);
                  }};
  if (relative) {
    problem.leaves.push_back(at::randn({z.b, z.h, z.t, z.e}, type));
    problem.leaves.push_back(at::randn({z.h, z.s, z.e}, type));
  }
  // Counts visible pairs only: 2 matmuls forward, 5 backward (and 1 + 3 for positions), 2 operations per MAC.
  const double pairs = static_cast<double>(z.b * z.h) * static_cast<double>(z.t) *
                       (static_cast<double>(z.s) - 0.5 * static_cast<double>(z.t - 1));
  const double flops = 2.0 * pairs * static_cast<double>(z.e) * (relative ? 11.0 : 7.0);
  const std::string name = z.name() + (relative ? " relative" : "");
  std::vector<Contender> contenders = reference_and_fused(name, problem, flops);
  if (!relative) {
    for (const FormulaRow& row : kFormulas) {
      contenders.push_back(formula_contender(z, row, problem, name, flops));
    }
    const std::optional<at::Tensor> mask =
        z.t == z.s ? std::nullopt : std::optional(at::ones({z.t, z.s}, type.dtype(at::kBool)).tril_(z.s - z.t));
    const auto torch = [=, whole = z.t == z.s](const std::vector<at::Tensor>& x, Implementation /*unused*/) {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0.0, whole, scale);
    };
    contenders.push_back({.name = name + ": PyTorch SDPA",
                          .work = forward_backward({problem.leaves, torch}, Implementation::automatic),
                          .flops = flops});
  }
  return contenders;
}

// The experts of published models.
struct ExpertSize {
  enum Kind {
    values,   // every head selects among its experts for the same input
    outputs,  // every head has an input, and the results of all heads are summed
    slots     // the heads are slots that share one bank
  };
  const char* name;
  Kind kind;
  std::int64_t n, heads, choices, experts, d_in, d_out;
};

constexpr ExpertSize kExpertSizes[] = {{"values 47M", ExpertSize::values, 8 * 512, 2, 2, 5, 412, 76},
                                       {"output 47M", ExpertSize::outputs, 8 * 256, 2, 2, 5, 76, 412},
                                       {"values 262M", ExpertSize::values, 2 * 1024, 4, 2, 4, 1024, 112},
                                       {"sigma-MoE up 47M", ExpertSize::slots, 8 * 256, 4, 1, 16, 412, 128}};

Problem expert_problem(const ExpertSize& z, const at::TensorOptions& type) {
  const bool per_head = z.kind == ExpertSize::outputs, slots = z.kind == ExpertSize::slots;
  const at::Tensor index = slots
                               ? at::rand({z.n, z.experts}).argsort(std::int64_t{-1}).narrow(1, 0, z.heads).unsqueeze(2)
                               : at::rand({z.n, z.heads, z.experts}).argsort(std::int64_t{-1}).narrow(2, 0, z.choices) +
                                     (at::arange(z.heads) * z.experts).view({1, z.heads, 1});
  return {{per_head ? at::randn({z.n, z.heads, z.d_in}, type) : at::randn({z.n, z.d_in}, type),
           at::randn({slots ? z.experts : z.heads * z.experts, z.d_in, z.d_out}, type),
           at::randn({z.n, z.heads, z.choices}, type.dtype(at::kFloat))},
          [index = index.to(type.device()), per_head](const std::vector<at::Tensor>& x, Implementation implementation) {
            return ops::expert_linear(
                {.input = x[0], .bank = x[1], .index = index, .weight = x[2], .sum_heads = per_head}, implementation);
          }};
}

}  // namespace

std::vector<Row> attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const bool relative : {false, true}) {
    for (const AttentionSize& z : kAttentionSizes) {
      if (!relative || z.has_relative) {
        append(rows, compare(attention_contenders(z, relative, options), options));
      }
    }
  }
  return rows;
}

std::vector<Row> expert_linear(const BenchOptions& options) {
  const at::TensorOptions type = type_of(options);
  std::vector<Row> rows;
  for (const ExpertSize& z : kExpertSizes) {
    const Problem dense{
        {at::randn({z.n * z.heads * z.choices, z.d_in}, type), at::randn({z.d_in, z.d_out}, type)},
        [](const std::vector<at::Tensor>& x, Implementation /*unused*/) { return ops::linear(x[0], x[1]); }};
    const double flops = 6.0 * static_cast<double>(z.n * z.heads * z.choices * z.d_in * z.d_out);
    std::vector<Contender> contenders = reference_and_fused(z.name, expert_problem(z, type), flops);
    contenders.push_back({.name = fmt::format("{}: dense product", z.name),
                          .work = forward_backward(dense, Implementation::automatic),
                          .flops = flops});
    append(rows, compare(contenders, options));
  }
  return rows;
}

std::vector<Row> cross_entropy(const BenchOptions& options) {
  constexpr std::int64_t kRows = 2048, kModel = 512, kVocabulary = 8000;
  const at::TensorOptions type = type_of(options);
  const at::Tensor target = at::randint(kVocabulary, {kRows}, at::kLong).to(type.device());
  const Problem problem{
      {at::randn({kRows, kModel}, type), at::randn({kModel, kVocabulary}, type), at::randn({kVocabulary}, type)},
      [target](const std::vector<at::Tensor>& x, Implementation implementation) {
        return ops::linear_cross_entropy(x[0], x[1], x[2], target, implementation);
      }};
  return compare(reference_and_fused(fmt::format("N{} d{} V{}", kRows, kModel, kVocabulary), problem,
                                     6.0 * static_cast<double>(kRows * kModel * kVocabulary)),
                 options);
}

}  // namespace headroom::bench
