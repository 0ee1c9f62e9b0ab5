#include "headroom/nn/mlp.h"

#include <vector>

#include "engine/ops/many_rows.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/routing.h"
#include "linear.h"

namespace headroom::nn {
namespace {

// dense: down(f(up(x))). gated: down(f(gate(x)) * up(x)), with hidden_groups = G, the hidden units form G contiguous
// groups, and group g is multiplied by softmax(x W_groups)_g (DCFormer's released models).
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
                        const at::Tensor& /*routed_by*/, const std::optional<at::Tensor>& /*valid*/) const override {
    if (gate_.defined()) {
      const std::vector<at::Tensor> both = linear_of_each(x, {{up_.w, up_.b}, {gate_.w, gate_.b}}, context);
      at::Tensor hidden = activate(both[1], activation_, context) * both[0];
      hidden =
          dropout(groups_.defined() ? gated_groups(hidden, x, context) : hidden, hidden_dropout, context, "hidden");
      return down_(hidden, context);
    }
    return down_(activate(up_(x, context), activation_, hidden_dropout, context, "hidden"), context);
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

// Returns `matrix` with columns scaled to equal norm and the same overall standard deviation.
at::Tensor with_equal_columns(const at::Tensor& matrix) {
  const auto spread = [](const at::Tensor& m) { return (m - m.mean()).square().sum().sqrt(); };
  const at::Tensor unit = matrix / matrix.norm(2, at::IntArrayRef{0}, /*keepdim=*/true);
  return matrix.size(0) > 1 ? unit * (spread(matrix) / spread(unit)) : matrix;
}

// y = sum over the routed experts e of w_e f_e(x), plus the shared MLP of x and the output bias, if any. With
// shared_gate, the shared MLP is multiplied by sigmoid(x W_shared_gate). One expert is
//   dense    f(x U) D
//   gated    (f(x G) * (x U)) D
//   clamped  (g sigmoid(1.702 g) * (u + 1)) D,  g = min(x G, 7), u = x U clamped to [-7, 7]  (gpt-oss)
// with a bias after each matrix if expert_bias is "all", or only after U and G if it is "hidden". The weights w_e are
// gate_scale times nn::gate_weights.
class ExpertMlp : public Mlp {
 public:
  // Letters: E experts, g d_hidden. Parameters "select" [d, E], "w_up" [E, d, g], "w_down" [E, g, d]; gated and
  // clamped: "w_gate" [E, d, g]; biases by expert_bias: output: "b_out" [d]; hidden: "b_out", "b_gate", "b_up" [E, g];
  // all: "b_gate", "b_up", "b_select" [E], "b_down" [E, d]; "shared.*", "w_shared_gate" [d, 1].
  ExpertMlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build) : options_(options) {
    const std::int64_t d = init.d_model, e = options.n_experts, g = options.d_hidden;
    const Distribution in = Distribution::normal(init.scaled(d)), out = Distribution::normal(init.scaled(e * g));
    const Distribution router = build.initialisation().matrix(in, {.in = d, .out = e});
    select_ = build.custom("select", {d, e}, [&] { return with_equal_columns(build.draw({d, e}, router)); });
    w_up_ = build.for_hidden({.batch = 1}).matrix("w_up", {e, d, g}, in, {.in = d, .out = e * g});
    w_down_ =
        build.for_hidden({.batch = 1}).matrix("w_down", {e, g, d}, out, {.in = e * g, .out = d, .into_stream = true});
    const bool gated = options.expert_kind != config::ExpertKind::dense;
    if (gated) {
      w_gate_ = build.for_hidden({.batch = 1}).matrix("w_gate", {e, d, g}, in, {.in = d, .out = e * g});
    }
    if (options.expert_bias == config::ExpertBias::hidden) {
      b_up_ = build.bias("b_up", {e, g}, d);
      if (gated) {
        b_gate_ = build.bias("b_gate", {e, g}, d);
      }
    }
    if (options.expert_bias == config::ExpertBias::output || options.expert_bias == config::ExpertBias::hidden) {
      b_out_ = build.bias("b_out", {d}, e * g);
    } else if (options.expert_bias == config::ExpertBias::all) {
      b_select_ = build.bias("b_select", {e}, d);
      b_up_ = build.bias("b_up", {e, g}, d);
      b_down_ = build.bias("b_down", {e, d}, e * g);
      if (gated) {
        b_gate_ = build.bias("b_gate", {e, g}, d);
      }
    }
    if (options.d_shared > 0) {
      config::MlpOptions shared = options;
      shared.kind = config::MlpKind::gated;
      shared.d_hidden = options.d_shared;
      shared.bias = false;
      shared.hidden_groups = 0;
      shared_.emplace(shared, init, build.in("shared"));
    }
    if (options.shared_gate) {
      const Linear::Options gate{
          .in = d, .out = 1, .init = Distribution::truncated_normal(init.scaled(d)), .bias = false};
      shared_gate_ = Linear("_shared_gate", gate, build.for_matmul());
    }
  }

  at::Tensor operator()(const at::Tensor& x, double hidden_dropout, const Context& context, const at::Tensor& routed_by,
                        const std::optional<at::Tensor>& valid) const override {
    const at::Tensor rows = x.flatten(0, -2);
    const RoutingOptions routing = with_padding({.n_heads = 1,
                                                 .n_experts = options_.n_experts,
                                                 .top_k = options_.top_k,
                                                 .gate = options_.gate,
                                                 .expert_dropout = options_.expert_dropout,
                                                 .zero_dropped = true},
                                                valid);
    const Routing routed = route(routed_by.defined() ? routed_by.flatten(0, -2) : rows, routing, context);
    if (context.losses != nullptr) {
      add_loss(context, "entropy", entropy_loss(routed.score.squeeze(1), routing.valid));
    }
    // Each routed expert becomes a slot: [N, 1, k] to [N, k, 1].
    const at::Tensor slot = routed.index.transpose(1, 2);
    at::Tensor weight = routed.weight.transpose(1, 2);
    if (options_.gate_scale != 1.0) {
      weight = weight * options_.gate_scale;
    }
    at::Tensor y = expert_matmul({.input = hidden(to_compute(rows, context), slot, context),
                                  .bank = to_compute(w_down_, context),
                                  .index = slot,
                                  .weight = weight,
                                  .sum_heads = true},
                                 context);
    if (b_down_.defined()) {
      const at::Tensor bias = of_slots(b_down_, slot, context);  // [N, k, d]
      y = y + by_rows(bias, context,
                      [&](const auto& part) { return (part(bias) * part(weight).to(bias.scalar_type())).sum(1); });
    }
    y = b_out_.defined() ? y + to_compute(b_out_, context) : y;
    y = y.view_symint(x.sym_sizes());
    return shared_ ? y + shared(x, hidden_dropout, context) : y;
  }

 private:
  at::Tensor shared(const at::Tensor& x, double hidden_dropout, const Context& context) const {
    const at::Tensor y = (*shared_)(x, hidden_dropout, context, {}, {});
    if (!shared_gate_.defined()) {
      return y;
    }
    const at::Tensor score = shared_gate_(x, context);
    return y * by_rows(score, context, [&](const auto& part) { return ops::sigmoid(part(score)); });
  }

  Routing route(const at::Tensor& rows, const RoutingOptions& routing, const Context& context) const {
    if (!b_select_.defined()) {
      return route_tokens(rows, select_, routing, context, "select");
    }
    return route_scores(matmul_rows(rows, select_, b_select_, context).unsqueeze(1), routing, context, "select");
  }

  // Returns the bias of each slot's expert, [N, k, o].
  static at::Tensor of_slots(const at::Tensor& bias, const at::Tensor& slot, const Context& context) {
    return to_compute(bias, context).index({slot.squeeze(2)});
  }

  // Returns the hidden units of the slots, [N, k, g].
  at::Tensor hidden(const at::Tensor& rows, const at::Tensor& slot, const Context& context) const {
    const auto times = [&](const at::Tensor& w, const at::Tensor& b) {
      const at::Tensor y = expert_matmul({.input = rows, .bank = to_compute(w, context), .index = slot}, context);
      return b.defined() ? y + of_slots(b, slot, context) : y;
    };
    const at::Tensor up = times(w_up_, b_up_);
    if (options_.expert_kind == config::ExpertKind::dense) {
      return activate(up, options_.activation, context);
    }
    const at::Tensor gate = times(w_gate_, b_gate_);
    if (options_.expert_kind == config::ExpertKind::gated) {
      return activate(gate, options_.activation, context) * up;
    }
    const double limit = config::kExpertLimit;
    const at::Tensor g = gate.clamp_max(limit), u = up.clamp(-limit, limit);
    return by_rows(g, context, [&](const auto& part) {
      return part(g) * ops::sigmoid(part(g) * config::kExpertSlope) * (part(u) + 1.0);
    });
  }

  config::MlpOptions options_;
  at::Tensor select_, w_gate_, w_up_, w_down_, b_select_, b_gate_, b_up_, b_down_, b_out_;
  std::optional<DenseMlp> shared_;
  Linear shared_gate_;
};

}  // namespace

std::unique_ptr<Mlp> make_mlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build) {
  if (options.kind == config::MlpKind::experts) {
    return std::make_unique<ExpertMlp>(options, init, build);
  }
  if (options.kind == config::MlpKind::none) {
    user_error("model.mlp.kind: must not be \"none\" where an MLP is built");
  }
  return std::make_unique<DenseMlp>(options, init, build);
}

}  // namespace headroom::nn
