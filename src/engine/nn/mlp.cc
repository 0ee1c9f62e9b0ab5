#include "headroom/nn/mlp.h"

#include "headroom/config/attention/routing_options.h"
#include "headroom/nn/routing.h"
#include "linear.h"

namespace headroom::nn {
namespace {

// dense: down(f(up(x))). gated: down(f(gate(x)) * up(x)), with hidden_groups G the hidden units in G groups of
// neighbours, group g multiplied by softmax(x W_groups)_g (DCFormer's released models).
class DenseMlp : public Mlp {
 public:
  // Parameters "w_gate", "w_up" [d, h], "w_down" [h, d], their biases, "w_groups" [d, G].
  DenseMlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build)
      : activation_(options.activation) {
    const std::int64_t d = init.d_model, hidden = options.d_hidden;
    const auto linear = [&](std::int64_t in, std::int64_t out) -> Linear::Options {
      return {.in = in, .out = out, .init = Distribution::truncated_normal(init.scaled(in)), .bias = options.bias};
    };
    if (options.kind == config::MlpKind::gated) {
      gate_ = Linear("_gate", linear(d, hidden), build.for_hidden({}));
    }
    up_ = Linear("_up", linear(d, hidden), build.for_hidden({}));
    Linear::Options down = linear(hidden, d);
    down.into_stream = true;
    down_ = Linear("_down", down, build.for_hidden({}));
    if (options.kind == config::MlpKind::gated && options.hidden_groups > 0) {
      Linear::Options groups = linear(d, options.hidden_groups);
      groups.bias = false;
      groups_ = Linear("_groups", groups, build.for_matmul());
    }
  }

  at::Tensor operator()(const at::Tensor& x, double hidden_dropout, const Context& context,
                        const at::Tensor& /*routed_by*/) const override {
    at::Tensor hidden = up_(x, context);
    if (gate_.defined()) {
      hidden = activate(gate_(x, context), activation_, context) * hidden;
      hidden =
          dropout(groups_.defined() ? gated_groups(hidden, x, context) : hidden, hidden_dropout, context, "hidden");
    } else {
      hidden = activate(hidden, activation_, hidden_dropout, context, "hidden");
    }
    return down_(hidden, context);
  }

 private:
  at::Tensor gated_groups(const at::Tensor& hidden, const at::Tensor& x, const Context& context) const {
    const at::Tensor scores = groups_(x, context);
    const at::Tensor gates = by_rows(scores, context, [&](const auto& part) { return part(scores).softmax(-1); });
    return (hidden.unflatten(-1, {groups_.w.size(1), -1}) * gates.unsqueeze(-1)).flatten(-2);
  }

  config::Activation activation_;
  Linear gate_, up_, down_, groups_;
};

// Returns `matrix` with columns of equal norm and the same overall standard deviation.
at::Tensor with_equal_columns(const at::Tensor& matrix) {
  const auto spread = [](const at::Tensor& m) { return (m - m.mean()).square().sum().sqrt(); };
  const at::Tensor unit = matrix / matrix.norm(2, at::IntArrayRef{0}, /*keepdim=*/true);
  return matrix.size(0) > 1 ? unit * (spread(matrix) / spread(unit)) : matrix;
}

class ExpertMlp : public Mlp {
 public:
  ExpertMlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build) : options_(options) {
    const std::int64_t d = init.d_model, e = options.n_experts, g = options.d_hidden;
    const Distribution in = Distribution::normal(init.scaled(d)), out = Distribution::normal(init.scaled(e * g));
    const Distribution router = build.initialisation().matrix(in, {.in = d, .out = e});
    select_ = build.custom("select", {d, e}, [&] { return with_equal_columns(build.draw({d, e}, router)); });
    w_up_ = build.for_hidden({.batch = 1}).matrix("w_up", {e, d, g}, in, {.in = d, .out = e * g});
    w_down_ =
        build.for_hidden({.batch = 1}).matrix("w_down", {e, g, d}, out, {.in = e * g, .out = d, .into_stream = true});
  }

  at::Tensor operator()(const at::Tensor& x, double /*hidden_dropout*/, const Context& context,
                        const at::Tensor& routed_by) const override {
    const RoutingOptions routing{.n_heads = 1,
                                 .n_experts = options_.n_experts,
                                 .top_k = options_.top_k,
                                 .gate = config::Gate::sigmoid,
                                 .expert_dropout = options_.expert_dropout,
                                 .zero_dropped = true};
    const at::Tensor rows = x.flatten(0, -2);
    const Routing routed =
        route_tokens(routed_by.defined() ? routed_by.flatten(0, -2) : rows, select_, routing, context, "select");
    if (context.losses != nullptr) {
      add_loss(context, "entropy", entropy_loss(routed.score.squeeze(1)));
    }
    // Each routed expert becomes a slot: [N, 1, k] to [N, k, 1].
    const at::Tensor slot = routed.index.transpose(1, 2);
    const at::Tensor hidden =
        expert_matmul({.input = to_compute(rows, context), .bank = to_compute(w_up_, context), .index = slot}, context);
    return expert_matmul({.input = activate(hidden, options_.activation, context),
                          .bank = to_compute(w_down_, context),
                          .index = slot,
                          .weight = routed.weight.transpose(1, 2),
                          .sum_heads = true},
                         context)
        .view_symint(x.sym_sizes());
  }

 private:
  config::MlpOptions options_;
  at::Tensor select_, w_up_, w_down_;
};

}  // namespace

std::unique_ptr<Mlp> make_mlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build) {
  if (options.kind == config::MlpKind::experts) {
    return std::make_unique<ExpertMlp>(options, init, build);
  }
  return std::make_unique<DenseMlp>(options, init, build);
}

}  // namespace headroom::nn
