#include "headroom/nn/mlp.h"

#include <cmath>

#include "headroom/nn/linear.h"
#include "headroom/nn/routing_losses.h"
#include "headroom/nn/selection.h"
#include "headroom/ops/expert_linear.h"

namespace headroom::nn {
namespace {

class DenseMlp : public Mlp {
 public:
  DenseMlp(const config::MlpOptions& options, std::int64_t d_model, std::int64_t n_layers, const Builder& build)
      : activation_(options.activation) {
    const auto deviation = [&](std::int64_t fan_in) { return std::sqrt(2.0 / static_cast<double>(n_layers * fan_in)); };
    const Builder weights = build.for_products();
    const auto bias = [&](std::string_view name, std::int64_t width) {
      return options.bias ? build.constant(name, {width}, 0.0) : at::Tensor();
    };
    if (options.kind == config::MlpKind::gated) {
      w_gate_ = weights.truncated_normal("w_gate", {d_model, options.d_hidden}, deviation(d_model));
      b_gate_ = bias("b_gate", options.d_hidden);
    }
    w_up_ = weights.truncated_normal("w_up", {d_model, options.d_hidden}, deviation(d_model));
    b_up_ = bias("b_up", options.d_hidden);
    w_down_ = weights.truncated_normal("w_down", {options.d_hidden, d_model}, deviation(options.d_hidden));
    b_down_ = bias("b_down", d_model);
  }

  at::Tensor operator()(const at::Tensor& x, double hidden_dropout, const Context& context) const override {
    at::Tensor hidden = linear(x, w_up_, b_up_, context);
    if (w_gate_.defined()) {
      hidden = dropout(activate(linear(x, w_gate_, b_gate_, context), activation_) * hidden, hidden_dropout, context,
                       "hidden");
    } else {
      hidden = activate(hidden, activation_, hidden_dropout, context, "hidden");
    }
    return linear(hidden, w_down_, b_down_, context);
  }

 private:
  config::Activation activation_;
  at::Tensor w_gate_, b_gate_, w_up_, b_up_, w_down_, b_down_;
};

// Columns to equal length, all together with the deviation they had.
at::Tensor with_equal_columns(const at::Tensor& matrix) {
  const auto spread = [](const at::Tensor& m) { return (m - m.mean()).square().sum().sqrt(); };
  const at::Tensor unit = matrix / matrix.norm(2, at::IntArrayRef{0}, /*keepdim=*/true);
  return matrix.size(0) > 1 ? unit * (spread(matrix) / spread(unit)) : matrix;
}

class ExpertMlp : public Mlp {
 public:
  ExpertMlp(const config::MlpOptions& options, std::int64_t d_model, std::int64_t n_layers, const Builder& build)
      : options_(options) {
    const std::int64_t e = options.n_experts, g = options.d_hidden;
    const double layers = static_cast<double>(n_layers);
    const double std_in = std::sqrt(2.0 / (layers * static_cast<double>(d_model)));
    select_ = build.given("select", with_equal_columns(build.draw_normal({d_model, e}, std_in)));
    w_up_ = build.for_products().normal("w_up", {e, d_model, g}, std_in);
    w_down_ =
        build.for_products().normal("w_down", {e, g, d_model}, std::sqrt(2.0 / (layers * static_cast<double>(e * g))));
  }

  at::Tensor operator()(const at::Tensor& x, double /*hidden_dropout*/, const Context& context) const override {
    const SelectionOptions choice{.n_heads = 1,
                                  .n_experts = options_.n_experts,
                                  .top_k = options_.top_k,
                                  .gate = config::Gate::sigmoid,
                                  .expert_dropout = options_.expert_dropout,
                                  .dropped_weigh_nothing = true};
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const Selection chosen = select_experts(rows, select_, choice, context, "select");
    if (context.losses != nullptr) {
      add_loss(context, "entropy", entropy_loss(chosen.score.squeeze(1)));
    }
    // Each chosen expert is a slot of its own: [N, 1, k] becomes [N, k, 1].
    const at::Tensor slot = chosen.index.transpose(1, 2);
    const at::Tensor hidden =
        ops::expert_linear({.input = to_compute(rows, context), .bank = to_compute(w_up_, context), .index = slot},
                           context.implementation);
    return ops::expert_linear({.input = activate(hidden, options_.activation),
                               .bank = to_compute(w_down_, context),
                               .index = slot,
                               .weight = chosen.weight.transpose(1, 2),
                               .sum_heads = true},
                              context.implementation)
        .view(x.sizes());
  }

 private:
  config::MlpOptions options_;
  at::Tensor select_, w_up_, w_down_;
};

}  // namespace

std::unique_ptr<Mlp> make_mlp(const config::MlpOptions& options, std::int64_t d_model, std::int64_t n_layers,
                              const Builder& build) {
  if (options.kind == config::MlpKind::experts) {
    return std::make_unique<ExpertMlp>(options, d_model, n_layers, build);
  }
  return std::make_unique<DenseMlp>(options, d_model, n_layers, build);
}

}  // namespace headroom::nn
