// Benchmarks of single operators against their references, PyTorch's attention and a dense matrix multiplication, and
// of attention layers, plain and with one added part, against their references.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "headroom/config/config.h"
#include "headroom/nn/attention.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/linear.h"
#include "timing.h"

namespace headroom::bench {
namespace {

// The sizes of attention in the benchmarks `attention` and `layers`.
struct AttentionSize {
  std::int64_t b, h, t, s, e;  // batch, heads, queries, keys, d_head
  bool has_relative = false;   // `attention` times it with relative positions, too
  std::string name() const { return fmt::format("B{} H{} T{} S{} e{}", b, h, t, s, e); }
};

inline constexpr AttentionSize kAttentionSizes[] = {{8, 8, 256, 256, 64},
                                                    {8, 10, 256, 512, 41, true},
                                                    {8, 2, 256, 512, 76, true},
                                                    {4, 16, 512, 1024, 64},
                                                    {4, 8, 1024, 1024, 64}};

// A computation that is timed forward and backward, with gradients of all leaves. run() gets tensors like `leaves`.
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

// Formulas, and the tensor that each reads. A tensor with a gradient is the last leaf of the problem.
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

// The sizes of published models' expert layers.
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

namespace {

using config::AttentionOptions;

struct NamedLayer {
  std::string name;
  AttentionOptions attention;
};

// A layer with these keys of [model.attention], "key=value".
NamedLayer named(const std::string& name, std::int64_t n_heads, std::int64_t d_head,
                 const std::vector<std::string>& settings = {}) {
  config::Config config;
  config.model.attention.n_heads = n_heads;
  config.model.attention.d_head = d_head;
  for (const std::string& setting : settings) {
    config::set_key(config, "model.attention." + setting, "bench");
  }
  return {name, config.model.attention};
}

// A plain layer, and layers with one added part. Most compute as many heads as the plain layer: routed queries select
// half of twice as many, and version 1 of differential attention halves its heads, as its authors do.
std::vector<NamedLayer> added_parts(std::int64_t h, std::int64_t e) {
  const std::int64_t groups = std::max<std::int64_t>(h / 4, 1);
  const auto key = [](const char* name, std::int64_t value) { return fmt::format("{}={}", name, value); };
  return {named("plain", h, e),
          named("sink", h, e, {"sink=true"}),
          named("gate of heads", h, e, {"gate_output=head"}),
          named("gate of heads from 12 channels", h, e, {"gate_output=head", "gate_channels=12"}),
          named("gate of channels", h, e, {"gate_output=element"}),
          named("exclusive", h, e, {"exclusive=true"}),
          named("linear biases", h, e, {"position=alibi"}),
          named("forget gates", h, e, {"position=forgetting"}),
          named("sigmoid", h, e, {"score=sigmoid"}),
          named("differential, version 2", h, e, {"composition=differential"}),
          named("differential, version 1", h / 2, e, {"composition=differential", "differential_version=1"}),
          named("factored, 2 and 6", h, e, {"projection=factored", "kv_rank=2", "q_rank=6"}),
          named(fmt::format("tied, {} of {}", groups, h), h, e + e % 2, {"projection=tied", key("n_kv_heads", groups)}),
          named("shared and routed", h, e,
                {"projection=shared_and_routed", key("shared_heads", h / 4), key("top_k", h / 2)}),
          named(fmt::format("grouped, {} of {}", h / 2, h), h, e, {key("n_kv_heads", h / 2)}),
          named(fmt::format("routed queries, {} of {} in {} groups", h, 2 * h, h / 2), 2 * h, e,
                {"projection=routed_queries", key("n_kv_heads", h / 2), "top_k=2", "gate=softmax_renormalised"})};
}

// Runs a forward and backward pass, with gradients of the tokens and all parameters. Keys before the tokens belong to a
// memory.
Work layer_training(const AttentionOptions& o, const AttentionSize& z, const BenchOptions& options,
                    Implementation implementation) {
  struct Layer {
    nn::Parameters parameters;
    nn::Attention attention;
    Layer(const AttentionOptions& o, std::int64_t d_model, std::int64_t keys, const at::TensorOptions& type)
        : attention(o, {.d_model = d_model, .context_length = keys},
                    nn::Builder(parameters, nn::ParameterSource(1, type))) {}
  };
  const std::int64_t d_model = z.h * z.e;
  const at::TensorOptions type = type_of(options);
  const auto layer = std::make_shared<Layer>(o, d_model, z.s, type.dtype(at::kFloat));
  nn::Context context;
  context.implementation = implementation;
  if (options.precision == "bf16") {
    context.compute_dtype = at::kBFloat16;
  }
  const at::Tensor x = at::randn({z.b, z.t, d_model}, type).requires_grad_(true);
  const at::Tensor memory = at::randn({z.b, z.s - z.t, d_model}, type);
  std::vector<at::Tensor> leaves = {x};
  for (const nn::Parameter& p : layer->parameters.all()) {
    leaves.push_back(p.tensor);
  }
  return [=] {
    const at::Tensor source = memory.size(1) == 0 ? at::Tensor() : at::cat({memory, x}, 1);
    const at::Tensor y = layer->attention({.x = x, .source = source}, context);
    torch::autograd::grad({y}, leaves, {at::ones_like(y)}, {}, false, /*allow_unused=*/true);
  };
}

}  // namespace

std::vector<Row> layers(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const AttentionSize& z : kAttentionSizes) {
    std::vector<Contender> contenders;
    for (const auto& [name, attention] : added_parts(z.h, z.e)) {
      const std::size_t reference = contenders.size();
      for (const auto& [how, implementation] :
           {std::pair("reference", Implementation::reference), std::pair("fused", Implementation::automatic)}) {
        contenders.push_back({.name = fmt::format("{}: {}, {}", z.name(), name, how),
                              .work = layer_training(attention, z, options, implementation),
                              .reference = reference});
      }
    }
    append(rows, compare(contenders, options));
  }
  return rows;
}

}  // namespace headroom::bench
