#include "headroom/nn/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/nn/linear.h"
#include "engine/nn/random.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/one_pass.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::nn {
namespace {

void count_usage(const at::Tensor& bank_index, std::int64_t n, const Context& context, const std::string& name) {
  const at::Tensor counts = at::bincount(bank_index.reshape({-1}), {}, n);
  at::Tensor& sum = (*context.usage)[name];
  sum = sum.defined() ? sum + counts : counts;
}

// gate_weights() elementwise, for batch-invariant decoding on the CPU. Vectorised tensor operations round an element
// differently depending on its index, and one operation per row would be slower. `score` is [N, H, E], `index` [N, H,
// K].
at::Tensor gate_weights_by_row(const at::Tensor& score, const at::Tensor& index, config::Gate gate) {
  const at::Tensor scores = ops::in_type(score, at::kFloat).contiguous(), indices = index.contiguous();
  const at::Tensor weights = at::empty(index.sizes(), scores.options());
  const std::int64_t n_experts = score.size(2), top_k = index.size(2);
  const float* x = scores.const_data_ptr<float>();
  const std::int64_t* routed = indices.const_data_ptr<std::int64_t>();
  float* to = weights.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < index.size(0) * index.size(1); ++row, x += n_experts, routed += top_k, to += top_k) {
    const auto each = [&](const auto& value) {
      for (std::int64_t i = 0; i < top_k; ++i) {
        to[i] = value(x[routed[i]]);
      }
    };
    if (gate == config::Gate::sigmoid) {
      each([](float s) { return 1.0F / (1.0F + std::exp(-s)); });
      continue;
    }
    const bool routed_only = gate == config::Gate::softmax_top_k;
    const float most = x[routed[0]];  // the indices are in descending order of score
    float sum = 0.0F;
    for (std::int64_t i = 0; i < (routed_only ? top_k : n_experts); ++i) {
      sum += std::exp(x[routed_only ? routed[i] : i] - most);
    }
    each([&](float s) { return std::exp(s - most) / sum; });
    if (gate == config::Gate::softmax_renormalised) {
      const float all = std::accumulate(to, to + top_k, 0.0F) + static_cast<float>(kRenormaliseEpsilon);
      std::transform(to, to + top_k, to, [&](float p) { return p / all; });
    }
  }
  return ops::in_type(weights, score.scalar_type());
}

}  // namespace

at::Tensor Routing::bank_index() const {
  const c10::SymInt heads = index.sym_size(1), experts = score.sym_size(2);
  if (heads == 1) {
    return index;
  }
  if (ops::suits_loop(index)) {  // the same in a single operation
    const at::Tensor own = index.contiguous();
    at::Tensor all = at::empty(own.sizes(), own.options());
    const auto* from = own.const_data_ptr<std::int64_t>();
    auto* to = all.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      to[i] = from[i] + i / all.size(2) % all.size(1) * score.size(2);
    }
    return all;
  }
  return index + (at::arange(heads, index.options()) * at::Scalar(experts)).view({1, -1, 1});
}

at::Tensor Routing::slots() const {
  return bank_index().flatten(1).unsqueeze(2);
}

Routing Routing::of_head(std::int64_t head) const {
  return {score.narrow(1, head, 1), index.narrow(1, head, 1), weight.narrow(1, head, 1)};
}

Routing Routing::narrow(const c10::SymInt& batch, const c10::SymInt& begin, const c10::SymInt& count) const {
  const auto rows = [&](const at::Tensor& t) {
    return t.view_symint({batch, -1, t.sym_size(1), t.sym_size(2)}).narrow_symint(1, begin, count).flatten(0, 1);
  };
  return {rows(score), rows(index), rows(weight)};
}

Routing Routing::in_order_of(const at::Tensor& other) const {
  return {score, other, at::zeros_like(score).scatter(-1, index, weight).gather(-1, other)};
}

RoutingOptions routing_options(const config::AttentionOptions& options, std::int64_t n_heads) {
  const auto& o = options.of<config::RoutingOptions>();
  return {.n_heads = n_heads,
          .n_experts = o.n_experts,
          .top_k = o.top_k,
          .gate = o.gate,
          .expert_dropout = o.expert_dropout};
}

RoutingOptions with_padding(RoutingOptions options, const std::optional<at::Tensor>& valid) {
  if (valid) {
    options.valid = valid->reshape({-1});
  }
  return options;
}

at::Tensor gate_weights(const at::Tensor& score, const at::Tensor& index, config::Gate gate) {
  switch (gate) {
    case config::Gate::sigmoid:
      return ops::sigmoid(score.gather(-1, index));
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

Routing route_tokens(const at::Tensor& x, const at::Tensor& w, const RoutingOptions& options, const Context& context,
                     const std::string& name) {
  const at::Tensor score = matmul_rows(x, ops::reshaped(w, {w.size(0), -1}), {}, context);
  return route_scores(ops::reshaped(score, {-1, options.n_heads, options.n_experts}), options, context, name);
}

Routing route_scores(const at::Tensor& score, const RoutingOptions& options, const Context& context,
                     const std::string& name) {
  Routing routing;
  routing.score = context.observe(name + ".score", score);
  at::Tensor ranked = routing.score.requires_grad() ? routing.score.detach() : routing.score, dropped;
  if (context.training && options.expert_dropout > 0.0) {
    dropped = uniform(ranked, context, name + ".dropout").lt(options.expert_dropout);
    ranked = ranked.masked_fill(dropped, -std::numeric_limits<double>::infinity());
  }
  routing.index = context.observe(name + ".index", std::get<1>(ranked.topk(options.top_k, -1)));
  const bool by_row = context.batch_invariant && score.is_cpu() && score.scalar_type() != at::kDouble;
  routing.weight = (by_row ? gate_weights_by_row : gate_weights)(routing.score, routing.index, options.gate);
  if (dropped.defined() && options.zero_dropped) {
    routing.weight = routing.weight.masked_fill(dropped.gather(-1, routing.index), 0.0);
  }
  if (options.valid) {
    routing.weight = routing.weight.masked_fill(options.valid->logical_not().view({-1, 1, 1}), 0.0);
  }
  routing.weight = context.observe(name + ".weight", routing.weight);
  if (context.usage != nullptr) {
    const at::Tensor index = routing.bank_index();
    count_usage(options.valid ? index.index({*options.valid}) : index, options.n_heads * options.n_experts, context,
                context.scope + name);
  }
  return routing;
}

namespace {

// Returns a / sum(a); all 0 if the sum is 0.
at::Tensor to_sum_one(const at::Tensor& a) {
  const at::Tensor sum = a.sum();
  return a / sum.masked_fill(sum.detach().eq(0.0), 1.0);
}

// Returns [N, E] with `values` at `index`, 0 elsewhere.
at::Tensor scatter_to_experts(const at::Tensor& index, const at::Tensor& values, std::int64_t n_experts) {
  return at::zeros_symint({index.sym_size(0), n_experts}, values.options()).scatter(-1, index, values);
}

}  // namespace

at::Tensor switch_loss(const at::Tensor& prob, const at::Tensor& counts) {
  const at::Tensor share = to_sum_one(prob.sum(0)), used = to_sum_one(counts.to(prob.scalar_type()));
  return (share * used).sum() * static_cast<double>(prob.sym_size(1).guard_int(__FILE__, __LINE__));
}

at::Tensor slot_counts(const at::Tensor& index, const c10::SymInt& batch, std::int64_t n_experts,
                       const std::optional<at::Tensor>& valid) {
  const std::int64_t k = index.sym_size(1).guard_int(__FILE__, __LINE__);
  // Padding is counted for an extra expert, which is cut off.
  const at::Tensor counted = valid ? index.masked_fill(valid->logical_not().unsqueeze(1), n_experts) : index;
  const at::Tensor by_sequence = counted.view_symint({batch, -1, k}).transpose(1, 2);  // [B, k, T]
  const at::Tensor hit = at::zeros_symint({batch, k, n_experts + 1}, index.options().dtype(at::kDouble))
                             .scatter(2, by_sequence, 1.0)
                             .narrow(2, 0, n_experts);
  return at::constant_pad_nd(hit.sum(at::IntArrayRef{0, 2}), {0, n_experts - k});
}

at::Tensor cv_loss(const at::Tensor& weights) {
  const at::Tensor share = to_sum_one(weights.sum(0));
  if (share.sym_size(0) == 1) {
    return share.sum() * 0.0;  // a single expert has no variance
  }
  return share.var() / (share.mean().square() + 1e-10);
}

at::Tensor z_loss(const at::Tensor& score, const std::optional<at::Tensor>& valid) {
  const at::Tensor of_tokens = score.logsumexp(at::IntArrayRef{-1}).square();
  return valid ? of_tokens.masked_fill(valid->logical_not(), 0.0).sum() / valid->sum().clamp_min(1) : of_tokens.mean();
}

at::Tensor entropy_loss(const at::Tensor& score, const std::optional<at::Tensor>& valid) {
  at::Tensor log_p = score.log_softmax(-1), tokens;
  if (valid) {
    log_p = log_p.masked_fill(valid->logical_not().unsqueeze(1), -std::numeric_limits<double>::infinity());
    tokens = valid->sum().to(at::kDouble);
  } else {
    tokens = at::scalar_tensor(at::Scalar(score.sym_size(0)), score.options().dtype(at::kDouble));
  }
  const at::Tensor log_mean =
      (log_p.logsumexp(at::IntArrayRef{0}) - tokens.log().to(score.scalar_type())).masked_fill(tokens.eq(0.0), 0.0);
  return (log_mean.exp() * log_mean).sum();
}

at::Tensor tokens_per_expert(const Routing& routing, const std::optional<at::Tensor>& valid) {
  const at::Tensor index = routing.index.flatten(1);  // [N, k]
  at::Tensor ones = at::ones_like(index);
  if (valid) {
    ones = ones * valid->unsqueeze(1);
  }
  return scatter_to_experts(index, ones, routing.score.sym_size(2).guard_int(__FILE__, __LINE__)).sum(0);
}

void add_loss(const Context& context, const std::string& kind, const at::Tensor& value) {
  at::Tensor& sum = (*context.losses)[kind];
  sum = sum.defined() ? sum + value : value;
}

namespace {

struct Router {
  Routing routing;    // of one head
  at::Tensor prob;    // [N, E]
  at::Tensor counts;  // [E]
};

void add_losses_of(const Router& router, const std::optional<at::Tensor>& valid, const c10::SymInt& batch,
                   const config::RoutedHeadOptions& options, const Context& context) {
  const at::Tensor score = router.routing.score.squeeze(1), index = router.routing.index.squeeze(1);
  const std::int64_t n = score.sym_size(1).guard_int(__FILE__, __LINE__);
  if (options.switch_coefficient > 0.0) {
    add_loss(context, "switch", switch_loss(router.prob, router.counts));
  }
  if (options.switch_slots_coefficient > 0.0) {
    add_loss(context, "switch_slots", switch_loss(router.prob, slot_counts(index, batch, n, valid)));
  }
  if (options.cv_coefficient > 0.0) {
    add_loss(context, "cv", cv_loss(scatter_to_experts(index, router.routing.weight.squeeze(1), n)));
  }
  if (options.z_coefficient > 0.0) {
    add_loss(context, "z", z_loss(score, valid));
  }
  if (options.entropy_coefficient > 0.0) {
    add_loss(context, "routing_entropy", entropy_loss(score, valid));
  }
}

}  // namespace

void add_routing_losses(const Routing& routing, const std::optional<at::Tensor>& valid, const c10::SymInt& batch,
                        const config::RoutedHeadOptions& options, const Context& context) {
  const std::int64_t n_routers = routing.score.sym_size(1).guard_int(__FILE__, __LINE__);
  at::Tensor probs = routing.score.softmax(-1);  // [N, H, E]
  if (valid) {
    probs = probs.masked_fill(valid->logical_not().view({-1, 1, 1}), 0.0);
  }
  probs = context.observe("select.prob", probs.squeeze(1)).view_as(routing.score);
  if (n_routers == 1) {
    const at::Tensor counts = context.observe("select.count", tokens_per_expert(routing, valid));
    add_losses_of({routing, probs.squeeze(1), counts}, valid, batch, options, context);
    return;
  }
  std::vector<at::Tensor> per_router;
  for (std::int64_t h = 0; h < n_routers; ++h) {
    per_router.push_back(tokens_per_expert(routing.of_head(h), valid));
  }
  const at::Tensor counts = context.observe("select.count", at::stack(per_router).squeeze(0)).view({n_routers, -1});
  for (std::int64_t h = 0; h < n_routers; ++h) {
    const Router router{routing.of_head(h), probs.select(1, h), counts.select(0, h)};
    add_losses_of(router, valid, batch, options, context);
  }
}

}  // namespace headroom::nn
