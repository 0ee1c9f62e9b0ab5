#include "headroom/nn/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/nn/linear.h"
#include "engine/nn/random.h"
#include "headroom/core/error.h"

namespace headroom::nn {
namespace {

void count_usage(const at::Tensor& bank_index, std::int64_t n, const Context& context, const std::string& name) {
  const at::Tensor counts = at::bincount(bank_index.reshape({-1}), {}, n);
  at::Tensor& sum = (*context.usage)[name];
  sum = sum.defined() ? sum + counts : counts;
}

// The same number by number, which takes few rows less time than a tensor operation for each: one for all of them would
// treat a number by its place in the tensor. score [N, H, E] and index [N, H, K] on the CPU.
at::Tensor gate_weights_apart(const at::Tensor& score, const at::Tensor& index, config::Gate gate) {
  const at::Tensor scores = score.to(at::kFloat).contiguous(), indices = index.contiguous();
  const at::Tensor weights = at::empty(index.sizes(), scores.options());
  const std::int64_t n_experts = score.size(2), top_k = index.size(2);
  const float* x = scores.const_data_ptr<float>();
  const std::int64_t* chosen = indices.const_data_ptr<std::int64_t>();
  float* to = weights.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < index.size(0) * index.size(1); ++row, x += n_experts, chosen += top_k, to += top_k) {
    const auto each = [&](const auto& value) {
      for (std::int64_t i = 0; i < top_k; ++i) {
        to[i] = value(x[chosen[i]]);
      }
    };
    if (gate == config::Gate::sigmoid) {
      each([](float s) { return 1.0F / (1.0F + std::exp(-s)); });
      continue;
    }
    const bool of_chosen = gate == config::Gate::softmax_top_k;
    const float most = x[chosen[0]];  // chosen in the order of their scores
    float sum = 0.0F;
    for (std::int64_t i = 0; i < (of_chosen ? top_k : n_experts); ++i) {
      sum += std::exp(x[of_chosen ? chosen[i] : i] - most);
    }
    each([&](float s) { return std::exp(s - most) / sum; });
    if (gate == config::Gate::softmax_renormalised) {
      const float all = std::accumulate(to, to + top_k, 0.0F) + static_cast<float>(kRenormaliseEpsilon);
      std::transform(to, to + top_k, to, [&](float p) { return p / all; });
    }
  }
  return weights.to(score.scalar_type());
}

}  // namespace

at::Tensor Selection::bank_index() const {
  const c10::SymInt heads = index.sym_size(1), experts = score.sym_size(2);
  return heads == 1 ? index : index + (at::arange(heads, index.options()) * at::Scalar(experts)).view({1, -1, 1});
}

Selection Selection::narrow(const c10::SymInt& batch, const c10::SymInt& begin, const c10::SymInt& count) const {
  const auto rows = [&](const at::Tensor& t) {
    return t.view_symint({batch, -1, t.sym_size(1), t.sym_size(2)}).narrow_symint(1, begin, count).flatten(0, 1);
  };
  return {rows(score), rows(index), rows(weight)};
}

Selection Selection::in_order_of(const at::Tensor& other) const {
  return {score, other, at::zeros_like(score).scatter(-1, index, weight).gather(-1, other)};
}

at::Tensor gate_weights(const at::Tensor& score, const at::Tensor& index, config::Gate gate) {
  switch (gate) {
    case config::Gate::sigmoid:
      return score.gather(-1, index).sigmoid();
    case config::Gate::softmax_top_k:
      return score.gather(-1, index).softmax(-1);
    case config::Gate::softmax:
      return score.softmax(-1).gather(-1, index);
    case config::Gate::softmax_renormalised: {
      const at::Tensor p = score.softmax(-1).gather(-1, index);
      return p / (p.detach().sum(-1, /*keepdim=*/true) + kRenormaliseEpsilon);
    }
  }
  fail("gate: unknown");
}

Selection select_experts(const at::Tensor& x, const at::Tensor& w, const SelectionOptions& options,
                         const Context& context, const std::string& name) {
  const at::Tensor score = product(x, w.reshape({w.size(0), -1}), {}, context);
  return choose_experts(score.view({-1, options.n_heads, options.n_experts}), options, context, name);
}

Selection choose_experts(const at::Tensor& score, const SelectionOptions& options, const Context& context,
                         const std::string& name) {
  Selection selection;
  selection.score = context.observe(name + ".score", score);
  at::Tensor ranked = selection.score.detach(), dropped;
  if (context.training && options.expert_dropout > 0.0) {
    dropped = uniform(ranked, context, name + ".dropout").lt(options.expert_dropout);
    ranked = ranked.masked_fill(dropped, -std::numeric_limits<double>::infinity());
  }
  selection.index = context.observe(name + ".index", std::get<1>(ranked.topk(options.top_k, -1)));
  const bool few = context.batch_invariant && score.is_cpu() && score.scalar_type() != at::kDouble;
  selection.weight = (few ? gate_weights_apart : gate_weights)(selection.score, selection.index, options.gate);
  if (dropped.defined() && options.dropped_weigh_nothing) {
    selection.weight = selection.weight.masked_fill(dropped.gather(-1, selection.index), 0.0);
  }
  if (options.valid) {
    selection.weight = selection.weight.masked_fill(options.valid->logical_not().view({-1, 1, 1}), 0.0);
  }
  selection.weight = context.observe(name + ".weight", selection.weight);
  if (context.usage != nullptr) {
    const at::Tensor index = selection.bank_index();
    count_usage(options.valid ? index.index({*options.valid}) : index, options.n_heads * options.n_experts, context,
                context.scope + name);
  }
  return selection;
}

}  // namespace headroom::nn
