#include "headroom/nn/selection.h"

#include <limits>

#include "headroom/core/error.h"
#include "headroom/nn/linear.h"
#include "headroom/nn/random.h"

namespace headroom::nn {
namespace {

void count_usage(const at::Tensor& bank_index, std::int64_t n, const Context& context, const std::string& name) {
  const at::Tensor counts = at::bincount(bank_index.reshape({-1}), {}, n);
  at::Tensor& sum = (*context.usage)[name];
  sum = sum.defined() ? sum + counts : counts;
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
  selection.weight = by_rows(selection.score, context, [&](const auto& part) {
    return gate_weights(part(selection.score), part(selection.index), options.gate);
  });
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
