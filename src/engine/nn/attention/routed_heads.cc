// Mixture of Attention Heads: each token's queries are routed to k experts (MoA Eq. 6-17). An expert is a query head,
// and all share one key and one value head, or a group of G query heads, one for each of G key and value heads
// (JetMoE). Head g k + j is head g of the expert in slot j.
#include <ATen/Functions.h>

#include <cstdint>
#include <optional>

#include "engine/nn/attention/query_router.h"
#include "engine/nn/linear.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

class RoutedHeads : public Projection {
 public:
  RoutedHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : n_keys_(o.key_projections()), d_head_(o.d_head), group_(o.computed_kv_heads()), top_k_(o.n_heads / group_) {
    const auto& heads = o.of<config::RoutedHeadOptions>();
    RoutingOptions routing = routing_options(o, 1);
    routing.top_k = top_k_;
    const std::int64_t d = init.d_model, e = o.d_head * group_, n = routing.n_experts, r = n_keys_;
    const Distribution in = Distribution::normal(init.scaled(d)),
                       out = Distribution::normal(init.scaled(o.n_heads * e));
    const Fan shared{.in = d, .out = e, .gain = kQkvGain};
    const Builder one = build.for_hidden({}), several = build.for_hidden({.batch = 1});
    // Groups of heads have an axis of their own: [.., d, G, e].
    const auto grouped = [&](std::vector<std::int64_t> shape, std::ptrdiff_t axis) {
      if (group_ > 1) {
        shape[static_cast<std::size_t>(axis)] = o.d_head;
        shape.insert(shape.begin() + axis, group_);
      }
      return shape;
    };
    w_q_ = several.matrix("w_q", grouped({n, d, e}, 2), in, {.in = d, .out = e});
    w_k_ = r == 1 ? one.matrix("w_k", grouped({d, e}, 1), in, shared)
                  : several.matrix("w_k", grouped({r, d, e}, 2), in, shared);
    w_v_ = one.matrix("w_v", grouped({d, e}, 1), in, shared);
    w_o_ = (group_ > 1 ? build.for_hidden({.batch = 1, .rows = 2}) : several)
               .matrix("w_o", grouped({n, e, d}, 1), out, {.in = e, .out = d, .into_stream = true});
    if (o.bias) {
      b_q_ = build.bias("b_q", grouped({n, e}, 1), d);
      b_k_ = r == 1 ? build.bias("b_k", grouped({e}, 0), d) : build.bias("b_k", grouped({r, e}, 1), d);
      b_v_ = build.bias("b_v", grouped({e}, 0), d);
      b_o_ = build.bias("b_o", {n, d}, e);
    }
    if (heads.output_bias) {
      b_out_ = build.bias("b_out", {d}, e);
    }
    router_.emplace(1, routing, heads, init, build);
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads;
    if (input.x.defined()) {
      project_queries(input, heads, context);
    }
    if (!input.source.defined()) {
      return heads;
    }
    for (std::int64_t i = 0; i < n_keys_; ++i) {
      heads.keys.push_back(
          shared(input.source, n_keys_ == 1 ? w_k_ : w_k_[i], b_k_.defined() && n_keys_ > 1 ? b_k_[i] : b_k_, context));
    }
    heads.v = shared(input.source_value, w_v_, b_v_, context);
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    const Routing& routing = *heads.query_routing;
    at::Tensor y = expert_matmul({.input = by_slot(o).flatten(0, 1),
                                  .bank = flat(to_compute(w_o_, context), 1),
                                  .index = routing.index.transpose(1, 2),
                                  .weight = routing.weight.transpose(1, 2),
                                  .sum_heads = true},
                                 context);
    if (b_o_.defined()) {
      const at::Tensor gate = at::zeros_like(routing.score).scatter(-1, routing.index, routing.weight).squeeze(1);
      y = y + torch_matmul(to_compute(gate, context), to_compute(b_o_, context), context);
    }
    y = b_out_.defined() ? y + to_compute(b_out_, context) : y;
    return y.view_symint({o.sym_size(0), o.sym_size(2), -1});
  }

 private:
  // Returns head outputs [B, H, T, w] as [B, T, k, G w].
  at::Tensor by_slot(const at::Tensor& o) const {
    if (group_ == 1) {
      return o.transpose(1, 2);
    }
    return o.unflatten(1, {group_, -1}).permute({0, 3, 2, 1, 4}).flatten(3);
  }

  // Joins axes `axis` and `axis` + 1, those of a group's heads and of their channels.
  at::Tensor flat(const at::Tensor& w, std::int64_t axis) const { return group_ == 1 ? w : w.flatten(axis, axis + 1); }

  void project_queries(const ProjectionInput& input, Heads& heads, const Context& context) const {
    const at::Tensor rows = input.x.flatten(0, 1);
    heads.query_routing = router_->route(rows, input, context);
    // Each routed head becomes a slot: [N, 1, k] to [N, k, 1].
    const at::Tensor slots = heads.query_routing->index.transpose(1, 2);
    at::Tensor q = expert_matmul(
        {.input = to_compute(rows, context), .bank = flat(to_compute(w_q_, context), 2), .index = slots}, context);
    if (b_q_.defined()) {
      q = q + flat(to_compute(b_q_, context), 1).index({slots.squeeze(2)});
    }
    const c10::SymInt b = input.x.sym_size(0), t = input.x.sym_size(1);
    heads.q = group_ == 1 ? q.view_symint({b, t, top_k_, d_head_}).transpose(1, 2)
                          : q.view_symint({b, t, top_k_, group_, d_head_}).permute({0, 3, 2, 1, 4}).flatten(1, 2);
  }

  // Projects [B, S, d] to [B, G, S, e].
  at::Tensor shared(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context) const {
    const at::Tensor y = linear(x, w, bias, context);
    return group_ == 1 ? y.unsqueeze(1) : y.unflatten(2, {group_, -1}).transpose(1, 2);
  }

  std::int64_t n_keys_, d_head_, group_, top_k_;
  at::Tensor w_q_, w_k_, w_v_, w_o_;  // [E, d, e], [d, e] or [R, d, e], [d, e], [E, e, d]
  at::Tensor b_q_, b_k_, b_v_, b_o_;  // [E, e], [e] or [R, e], [e], [E, d]
  at::Tensor b_out_;                  // [d]
  std::optional<QueryRouter> router_;
};

const Factory<MakeProjection> kRoutedHeads("routed_heads", make_part<Projection, RoutedHeads>);

}  // namespace
}  // namespace headroom::nn
