// Routed query heads: a router selects k of E experts for each token's queries (MoA Eq. 6-17).
//
// routed_heads: one router. An expert is a query head, and all share one key head and one value head (MoA), or a group
// of G query heads, one for each of G key and value heads (JetMoE).
//
// routed_queries: one router per group (G groups). An expert is one of the query heads that share the group's key/value
// head (grouped query experts). With G = 1 this is MoA.
//
// Head g k + j reads key/value head g: it is head g of the expert in slot j, or the expert in slot j of group g.
#include <ATen/Functions.h>

#include <cstdint>
#include <optional>

#include "engine/nn/linear.h"
#include "engine/nn/random.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// Scores the experts of each group, with noise and losses if the options require them. Parameter "select" [d, G E],
// and with noisy routing "select_noise" of the same shape.
class QueryRouter {
 public:
  // Routes each token to `options.top_k` of `options.n_experts` experts in each of `n_groups` groups.
  QueryRouter(std::int64_t n_groups, const RoutingOptions& options, const config::RoutedHeadOptions& heads,
              const LayerInit& init, const Builder& build)
      : n_groups_(n_groups), options_(options), heads_(heads) {
    const std::int64_t d = init.d_model, n = n_groups * options.n_experts;
    // MoA initialises the router to 0 (glorot); the other rules initialise it like any matrix.
    select_ = build.initialisation().rule == config::Initialisation::glorot
                  ? build.constant("select", {d, n}, 0.0)
                  : build.matrix("select", {d, n}, Distribution::normal(init.scaled(d)), {.in = d, .out = n});
    if (heads.noisy_routing) {
      select_noise_ = build.constant("select_noise", {d, n}, 0.0);
    }
  }

  // Routes the rows of `input.x` [B, T, d], given as `rows` [B T, d].
  Routing route(const at::Tensor& rows, const ProjectionInput& input, const Context& context) const {
    const at::Tensor wide = rows.to(select_.scalar_type());
    at::Tensor score = torch_matmul(wide, select_, context);
    if (select_noise_.defined() && (context.training || input.router_noise)) {
      score = score + noise(input, score, context) * (at::softplus(wide.mm(select_noise_)) + kNoiseFloor);
    }
    const RoutingOptions options = with_padding(options_, input.valid_queries);
    Routing routing = route_scores(score.view_symint({-1, n_groups_, options.n_experts}), options, context, "select");
    if (context.losses != nullptr) {
      const Routing by_slot = input.router_slots
                                  ? routing.in_order_of(input.router_slots->reshape_symint(routing.index.sym_sizes()))
                                  : routing;
      add_routing_losses(by_slot, options.valid, input.x.sym_size(0), heads_, context);
    }
    return routing;
  }

 private:
  static at::Tensor noise(const ProjectionInput& input, const at::Tensor& score, const Context& context) {
    if (input.router_noise) {
      return input.router_noise->reshape_symint(score.sym_sizes());
    }
    return normal(score, context, "select.noise");
  }

  std::int64_t n_groups_;
  RoutingOptions options_;
  config::RoutedHeadOptions heads_;
  at::Tensor select_, select_noise_;
};

// X: experts of all groups. P: query heads of an expert, G or 1.
class RoutedHeads : public Projection {
 public:
  RoutedHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : n_keys_(o.key_projections()),
        d_head_(o.d_head),
        kv_heads_(o.computed_kv_heads()),
        expert_heads_(o.projection->heads_per_expert(o)) {
    const auto& heads = o.of<config::RoutedHeadOptions>();
    const std::int64_t n_groups = kv_heads_ / expert_heads_;
    RoutingOptions routing = routing_options(o, n_groups);
    routing.n_experts = o.projection->router_width(o);
    routing.top_k = o.computed_heads() / kv_heads_;
    const std::int64_t d = init.d_model, e = d_head_ * expert_heads_, x = n_groups * routing.n_experts;
    const Distribution in = Distribution::normal(init.scaled(d)),
                       out = Distribution::normal(init.scaled(o.computed_heads() * e));
    const Fan shared{.in = d, .out = kv_heads_ * d_head_, .gain = kQkvGain};
    const Builder one = build.for_hidden({}), several = build.for_hidden({.batch = 1});
    w_q_ = several.matrix("w_q", per_head({x, d, d_head_}, 2, expert_heads_), in, {.in = d, .out = e});
    w_k_ = (n_keys_ == 1 ? one : several).matrix("w_k", per_key(per_head({d, d_head_}, 1, kv_heads_)), in, shared);
    w_v_ = one.matrix("w_v", per_head({d, d_head_}, 1, kv_heads_), in, shared);
    w_o_ =
        (expert_heads_ > 1 ? build.for_hidden({.batch = 1, .rows = 2}) : several)
            .matrix("w_o", per_head({x, d_head_, d}, 1, expert_heads_), out, {.in = e, .out = d, .into_stream = true});
    if (o.bias) {
      b_q_ = build.bias("b_q", per_head({x, d_head_}, 1, expert_heads_), d);
      b_k_ = build.bias("b_k", per_key(per_head({d_head_}, 0, kv_heads_)), d);
      b_v_ = build.bias("b_v", per_head({d_head_}, 0, kv_heads_), d);
      b_o_ = build.bias("b_o", {x, d}, e);
    }
    if (heads.output_bias) {
      b_out_ = build.bias("b_out", {d}, e);
    }
    router_.emplace(n_groups, routing, heads, init, build);
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
                                  .bank = joined(to_compute(w_o_, context), 1),
                                  .index = routing.slots(),
                                  .weight = routing.weight.flatten(1).unsqueeze(2),
                                  .sum_heads = true},
                                 context);
    if (b_o_.defined()) {
      const at::Tensor gate = at::zeros_like(routing.score).scatter(-1, routing.index, routing.weight).flatten(1);
      y = y + torch_matmul(to_compute(gate, context), to_compute(b_o_, context), context);
    }
    y = b_out_.defined() ? y + to_compute(b_out_, context) : y;
    return y.unflatten_symint(0, {o.sym_size(0), o.sym_size(2)});
  }

 private:
  // Insert the axis of heads or of keys into a parameter's shape, unless it has size 1.
  static std::vector<std::int64_t> per_head(std::vector<std::int64_t> shape, std::ptrdiff_t axis, std::int64_t heads) {
    if (heads > 1) {
      shape.insert(shape.begin() + axis, heads);
    }
    return shape;
  }
  std::vector<std::int64_t> per_key(const std::vector<std::int64_t>& shape) const {
    return per_head(shape, 0, n_keys_);
  }

  // Flattens an expert's heads (axis `axis`) and their channels (`axis` + 1) into one axis.
  at::Tensor joined(const at::Tensor& w, std::int64_t axis) const {
    return expert_heads_ == 1 ? w : w.flatten(axis, axis + 1);
  }

  // Groups head outputs [B, H, T, w] by slot: [B, T, H / P, P w].
  at::Tensor by_slot(const at::Tensor& o) const {
    return expert_heads_ == 1 ? o.transpose(1, 2)
                              : o.unflatten(1, {expert_heads_, -1}).permute({0, 3, 2, 1, 4}).flatten(3);
  }

  void project_queries(const ProjectionInput& input, Heads& heads, const Context& context) const {
    const at::Tensor rows = input.x.flatten(0, 1);
    heads.query_routing = router_->route(rows, input, context);
    const at::Tensor slots = heads.query_routing->slots();
    at::Tensor q = expert_matmul(
        {.input = to_compute(rows, context), .bank = joined(to_compute(w_q_, context), 2), .index = slots}, context);
    if (b_q_.defined()) {
      q = q + joined(to_compute(b_q_, context), 1).index({slots.squeeze(2)});
    }
    q = q.unflatten_symint(0, {input.x.sym_size(0), input.x.sym_size(1)}).flatten(2);
    heads.q = expert_heads_ == 1 ? q.unflatten(2, {-1, d_head_}).transpose(1, 2)
                                 : q.unflatten(2, {-1, expert_heads_, d_head_}).permute({0, 3, 2, 1, 4}).flatten(1, 2);
  }

  // Projects [B, S, d] to [B, G, S, e].
  at::Tensor shared(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context) const {
    return linear(x, w, bias, context).unflatten(2, {kv_heads_, -1}).transpose(1, 2);
  }

  std::int64_t n_keys_, d_head_, kv_heads_, expert_heads_;
  at::Tensor w_q_, w_k_, w_v_, w_o_;  // [X, d, P, e], [R, d, G, e], [d, G, e], [X, P, e, d]; axes of size 1 omitted
  at::Tensor b_q_, b_k_, b_v_, b_o_;  // [X, P, e], [R, G, e], [G, e], [X, d]; same
  at::Tensor b_out_;                  // [d]
  std::optional<QueryRouter> router_;
};

const Factory<MakeProjection> kRoutedHeads("routed_heads", make_part<Projection, RoutedHeads>);
const Factory<MakeProjection> kRoutedQueries("routed_queries", make_part<Projection, RoutedHeads>);

// Mixture-of-head attention (MoH; Jin et al. 2024): all heads are computed, and the first s of H are shared. With the
// query's token x_i, E = H - s and p = softmax(x_i W_select) over the routed heads,
//   y_i = sum_h g_h o_i^h W_o^h,  (a_1, a_2) = 2 softmax(x_i W_mix)
//   shared heads                  g_h = a_1 s softmax(x_i W_shared)_h; s = 1: a_1
//   the k routed heads of top p   g_h = a_2 k p_h / sum of the k routed p; s = 0: without a_2
//   all others                    g_h = 0
// The released code clamps this sum from below at machine epsilon. That has no effect, because the k largest of E
// probabilities sum to at least k / E.
class SharedAndRouted : public Projection {
 public:
  SharedAndRouted(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : heads_(factory_of<MakeProjection>("dense")(o, init, build)),
        n_shared_(o.of<config::SharedHeadOptions>().shared_heads),
        routing_{.n_experts = o.projection->router_width(o),
                 .top_k = o.of<config::RoutingOptions>().top_k,
                 .gate = config::Gate::softmax_top_k},
        losses_{.switch_coefficient = o.of<config::RoutedHeadOptions>().switch_coefficient, .z_coefficient = 0.0} {
    const auto router = [&](const char* name, std::int64_t width) {
      return build.matrix(name, {init.d_model, width}, Distribution::normal(init.scaled(init.d_model)),
                          {.in = init.d_model, .out = width});
    };
    select_ = router("select", routing_.n_experts);
    if (n_shared_ > 1) {
      select_shared_ = router("select_shared", n_shared_);
    }
    if (n_shared_ > 0) {
      select_mix_ = router("select_mix", 2);
    }
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads = heads_->project(input, context);
    if (input.x.defined()) {
      heads.gate = to_compute(gates(input, context).transpose(1, 2).unsqueeze(3), context);
    }
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    return heads_->combine(o, heads, context);
  }

 private:
  // Returns [B, T, H].
  at::Tensor gates(const ProjectionInput& input, const Context& context) const {
    const c10::SymInt b = input.x.sym_size(0), t = input.x.sym_size(1);
    const RoutingOptions options = with_padding(routing_, input.valid_queries);
    const Routing routed = route_tokens(input.x.flatten(0, 1), select_, options, context, "select");
    if (context.losses != nullptr) {
      add_routing_losses(routed, options.valid, b, losses_, context);
    }
    const at::Tensor chosen = at::zeros_like(routed.score).scatter(-1, routed.index, routed.weight);  // [B T, 1, E]
    const at::Tensor gate = chosen.flatten(1).unflatten_symint(0, {b, t}) * static_cast<double>(routing_.top_k);
    if (n_shared_ == 0) {
      return gate;
    }
    const at::Tensor mix = softmax(input.x, select_mix_, context) * 2.0;
    at::Tensor shared = mix.narrow(2, 0, 1);
    if (n_shared_ > 1) {
      shared = softmax(input.x, select_shared_, context) * static_cast<double>(n_shared_) * shared;
    }
    return at::cat({shared, gate * mix.narrow(2, 1, 1)}, 2);
  }

  // Returns the softmax of x w, [B, T, n], in the parameters' type.
  static at::Tensor softmax(const at::Tensor& x, const at::Tensor& w, const Context& context) {
    const at::Tensor score =
        matmul_rows(x.flatten(0, 1), w, {}, context).view_symint({x.sym_size(0), x.sym_size(1), w.size(1)});
    return by_rows(score, context, [&](const auto& part) { return part(score).softmax(-1); });
  }

  std::unique_ptr<Projection> heads_;  // dense
  std::int64_t n_shared_;
  RoutingOptions routing_;
  config::RoutedHeadOptions losses_;
  at::Tensor select_, select_shared_, select_mix_;  // [d, E], [d, s], [d, 2]
};

const Factory<MakeProjection> kSharedAndRouted("shared_and_routed", make_part<Projection, SharedAndRouted>);

}  // namespace
}  // namespace headroom::nn
