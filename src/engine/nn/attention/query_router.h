// The router of routed query heads (MoA Eq. 6-9; JetMoE; grouped query experts): scores of the experts of each group,
// with noise and losses where the options ask for them.
#pragma once

#include <ATen/Functions.h>

#include <cstdint>

#include "engine/nn/linear.h"
#include "engine/nn/random.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {

// Parameter "select" [d, G E], and with noisy routing "select_noise" of the same shape.
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
    RoutingOptions options = options_;
    if (input.valid_queries) {
      options.valid = input.valid_queries->reshape({-1});
    }
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

}  // namespace headroom::nn
