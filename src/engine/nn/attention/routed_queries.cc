// Grouped query experts: in each of G groups, each token's queries are routed to k of E heads, which share the group's
// key and value head. With G = 1 this is Mixture of Attention Heads (routed_heads.cc).
#include <ATen/Functions.h>

#include <cstdint>
#include <optional>

#include "engine/nn/attention/query_router.h"
#include "engine/nn/linear.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// X = G E query heads; a token uses k of each group, H = G k in all.
class RoutedQueries : public Projection {
 public:
  RoutedQueries(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : n_keys_(o.key_projections()), n_groups_(o.computed_kv_heads()), d_head_(o.d_head) {
    const auto& heads = o.of<config::RoutedHeadOptions>();
    RoutingOptions routing = routing_options(o, n_groups_);
    routing.n_experts = o.projection->router_width(o);
    routing.top_k = o.computed_heads() / n_groups_;
    const std::int64_t d = init.d_model, e = o.d_head, n = n_groups_ * routing.n_experts;
    const Distribution in = Distribution::normal(init.scaled(d)),
                       out = Distribution::normal(init.scaled(o.computed_heads() * e));
    const Fan shared{.in = d, .out = n_groups_ * e, .gain = kQkvGain};
    const Builder one = build.for_hidden({}), several = build.for_hidden({.batch = 1});
    w_q_ = several.matrix("w_q", {n, d, e}, in, {.in = d, .out = e});
    w_k_ = (n_keys_ == 1 ? one : several).matrix("w_k", per_key(per_group({d, e})), in, shared);
    w_v_ = one.matrix("w_v", per_group({d, e}), in, shared);
    w_o_ = several.matrix("w_o", {n, e, d}, out, {.in = e, .out = d, .into_stream = true});
    if (o.bias) {
      b_q_ = build.bias("b_q", {n, e}, d);
      b_k_ = build.bias("b_k", per_key(per_group({e})), d);
      b_v_ = build.bias("b_v", per_group({e}), d);
      b_o_ = build.bias("b_o", {n, d}, e);
    }
    router_.emplace(n_groups_, routing, heads, init, build);
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
    at::Tensor y = expert_matmul({.input = o.transpose(1, 2).flatten(0, 1),
                                  .bank = to_compute(w_o_, context),
                                  .index = routing.slots(),
                                  .weight = routing.weight.flatten(1).unsqueeze(2),
                                  .sum_heads = true},
                                 context);
    if (b_o_.defined()) {
      const at::Tensor gate = at::zeros_like(routing.score).scatter(-1, routing.index, routing.weight).flatten(1);
      y = y + torch_matmul(to_compute(gate, context), to_compute(b_o_, context), context);
    }
    return y.view_symint({o.sym_size(0), o.sym_size(2), -1});
  }

 private:
  void project_queries(const ProjectionInput& input, Heads& heads, const Context& context) const {
    const at::Tensor rows = input.x.flatten(0, 1);
    heads.query_routing = router_->route(rows, input, context);
    const at::Tensor slots = heads.query_routing->slots();
    at::Tensor q =
        expert_matmul({.input = to_compute(rows, context), .bank = to_compute(w_q_, context), .index = slots}, context);
    if (b_q_.defined()) {
      q = q + to_compute(b_q_, context).index({slots.squeeze(2)});
    }
    heads.q = q.view_symint({input.x.sym_size(0), input.x.sym_size(1), -1, d_head_}).transpose(1, 2);
  }

  // Projects [B, S, d] to [B, G, S, e].
  at::Tensor shared(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context) const {
    return linear(x, w, bias, context).view_symint({x.sym_size(0), x.sym_size(1), n_groups_, d_head_}).transpose(1, 2);
  }

  // Shapes of the parameters of several groups and of several keys; a single group or key has no axis.
  std::vector<std::int64_t> per_group(std::vector<std::int64_t> shape) const {
    if (n_groups_ > 1) {
      shape.insert(shape.end() - 1, n_groups_);
    }
    return shape;
  }
  std::vector<std::int64_t> per_key(std::vector<std::int64_t> shape) const {
    if (n_keys_ > 1) {
      shape.insert(shape.begin(), n_keys_);
    }
    return shape;
  }

  std::int64_t n_keys_, n_groups_, d_head_;
  at::Tensor w_q_, w_k_, w_v_, w_o_;  // [X, d, e], [R, d, G, e], [d, G, e], [X, e, d]; no axes for R = 1 and G = 1
  at::Tensor b_q_, b_k_, b_v_, b_o_;  // [X, e], [R, G, e], [G, e], [X, d], likewise
  std::optional<QueryRouter> router_;
};

const Factory<MakeProjection> kRoutedQueries("routed_queries", make_part<Projection, RoutedQueries>);

}  // namespace
}  // namespace headroom::nn
