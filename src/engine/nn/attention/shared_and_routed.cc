// Mixture-of-head attention (MoH; Jin et al. 2024): all heads are computed, and the first s of H are shared. With the
// query's token x_i, E = H - s and p = softmax(x_i W_select) over the routed heads,
//   y_i = sum_h g_h o_i^h W_o^h,  (a_1, a_2) = 2 softmax(x_i W_mix)
//   shared heads                  g_h = a_1 s softmax(x_i W_shared)_h; s = 1: a_1
//   the k routed heads of top p   g_h = a_2 k p_h / sum of the k routed p; s = 0: without a_2
//   all others                    g_h = 0
// The released code clamps this sum from below at machine epsilon. That has no effect, because the k largest of E
// probabilities sum to at least k / E.
#include "engine/nn/linear.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

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
