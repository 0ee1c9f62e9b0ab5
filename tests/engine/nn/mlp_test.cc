#include "headroom/nn/mlp.h"

#include "engine/ops/gradients.h"
#include "one_thread.h"

namespace headroom::nn::mlp_test {

using config::MlpKind;
using config::MlpOptions;

struct Layer {
  Parameters parameters;
  std::unique_ptr<Mlp> mlp;
  Layer(const MlpOptions& o, std::int64_t width, at::ScalarType type = at::kDouble) {
    mlp = make_mlp(o, {.d_model = width, .n_layers = 3}, Builder(parameters, ParameterSource(1, type)));
  }
};

MlpOptions options(MlpKind kind) {
  MlpOptions o;
  o.kind = kind;
  o.d_hidden = 7;
  o.n_experts = 5;
  o.top_k = 2;
  o.activation = config::Activation::relu;
  return o;
}

TEST(Mlp, GroupsOfHiddenUnitsAreGatedByTheToken) {
  MlpOptions o = options(MlpKind::gated);
  o.activation = config::Activation::silu;
  o.bias = false;
  o.d_hidden = 6;
  o.hidden_groups = 3;
  Layer layer(o, 4);
  const at::Tensor x = at::randn({2, 3, 4}, at::kDouble);
  const auto& p = layer.parameters;
  const at::Tensor gate = x.matmul(p.at("w_gate"));
  const at::Tensor groups = x.matmul(p.at("w_groups")).softmax(-1).repeat_interleave(2, -1);
  const at::Tensor hidden = gate * gate.sigmoid() * x.matmul(p.at("w_up")) * groups;
  EXPECT_LE(testing::relative_error((*layer.mlp)(x, 0.0, Context()), hidden.matmul(p.at("w_down"))), 1e-14);
}

TEST(Mlp, ExpertsAreASumOverTheSelected) {
  Layer layer(options(MlpKind::experts), 4);
  const auto& p = layer.parameters;
  const at::Tensor x = at::randn({1, 6, 4}, at::kDouble);
  std::map<std::string, at::Tensor> losses;
  const Context context{.losses = &losses};
  const at::Tensor y = (*layer.mlp)(x, 0.0, context)[0];
  const at::Tensor score = x[0].matmul(p.at("select"));
  const at::Tensor chosen = std::get<1>(score.topk(2, -1));
  at::Tensor expected = at::zeros({6, 4}, at::kDouble);
  for (std::int64_t n = 0; n < 6; ++n) {
    for (std::int64_t k = 0; k < 2; ++k) {
      const std::int64_t e = chosen[n][k].item<std::int64_t>();
      expected[n] += score[n][e].sigmoid() * x[0][n].matmul(p.at("w_up")[e]).relu().matmul(p.at("w_down")[e]);
    }
  }
  EXPECT_LE(testing::relative_error(y, expected), 1e-13);
  const at::Tensor mean = score.softmax(-1).mean(0);
  EXPECT_NEAR(losses.at("entropy").item<double>(), (mean * mean.log()).sum().item<double>(), 1e-12);
}

MlpOptions experts(config::ExpertKind kind, config::ExpertBias bias, config::Gate gate) {
  MlpOptions o = options(MlpKind::experts);
  o.expert_kind = kind;
  o.expert_bias = bias;
  o.gate = gate;
  o.activation = config::Activation::silu;
  return o;
}

// Applies expert e of `p` to the rows x.
at::Tensor expert_output(const Parameters& p, const MlpOptions& o, std::int64_t e, const at::Tensor& x) {
  const bool all = o.expert_bias == config::ExpertBias::all, hidden_units = o.expert_bias == config::ExpertBias::hidden;
  const auto linear = [&](const at::Tensor& from, const std::string& name) {
    const at::Tensor y = from.matmul(p.at("w_" + name)[e]);
    return all || (hidden_units && name != "down") ? y + p.at("b_" + name)[e] : y;
  };
  at::Tensor hidden = linear(x, "up");
  if (o.expert_kind == config::ExpertKind::dense) {
    hidden = at::silu(hidden);
  } else if (o.expert_kind == config::ExpertKind::gated) {
    hidden = at::silu(linear(x, "gate")) * hidden;
  } else {
    const at::Tensor g = linear(x, "gate").clamp_max(7.0);
    hidden = g * (1.702 * g).sigmoid() * (hidden.clamp(-7.0, 7.0) + 1.0);
  }
  return linear(hidden, "down");
}

TEST(Mlp, ExpertsOfOtherKinds) {
  for (MlpOptions o : {experts(config::ExpertKind::gated, config::ExpertBias::output, config::Gate::softmax_top_k),
                       experts(config::ExpertKind::gated, config::ExpertBias::none, config::Gate::softmax),
                       experts(config::ExpertKind::gated, config::ExpertBias::none, config::Gate::softmax_top_k),
                       experts(config::ExpertKind::clamped, config::ExpertBias::all, config::Gate::softmax_top_k),
                       experts(config::ExpertKind::gated, config::ExpertBias::hidden, config::Gate::softmax_top_k),
                       experts(config::ExpertKind::dense, config::ExpertBias::hidden, config::Gate::softmax),
                       experts(config::ExpertKind::dense, config::ExpertBias::all, config::Gate::softmax)}) {
    o.gate_scale = 1.5;
    o.d_shared = o.expert_bias == config::ExpertBias::none ? 6 : 0;
    o.shared_gate = o.d_shared > 0 && o.gate == config::Gate::softmax_top_k;
    Layer layer(o, 4);
    for (const Parameter& parameter : layer.parameters.all()) {
      at::Tensor(parameter.tensor).detach().normal_();  // gives biases values, and makes the clamps act
    }
    const auto& p = layer.parameters;
    const at::Tensor x = at::randn({6, 4}, at::kDouble) * 2.0;
    at::Tensor score = x.matmul(p.at("select"));
    score = o.expert_bias == config::ExpertBias::all ? score + p.at("b_select") : score;
    const auto [top, index] = score.topk(2, -1);
    const at::Tensor weight = o.gate == config::Gate::softmax ? score.softmax(-1).gather(-1, index) : top.softmax(-1);
    at::Tensor expected = at::zeros({6, 4}, at::kDouble);
    for (std::int64_t n = 0; n < 6; ++n) {
      for (std::int64_t k = 0; k < 2; ++k) {
        expected[n] += 1.5 * weight[n][k] * expert_output(p, o, index[n][k].item<std::int64_t>(), x[n]);
      }
    }
    if (o.expert_bias == config::ExpertBias::output || o.expert_bias == config::ExpertBias::hidden) {
      expected = expected + p.at("b_out");
    }
    if (o.d_shared > 0) {
      const at::Tensor shared =
          (at::silu(x.matmul(p.at("shared.w_gate"))) * x.matmul(p.at("shared.w_up"))).matmul(p.at("shared.w_down"));
      expected = expected + (o.shared_gate ? shared * x.matmul(p.at("w_shared_gate")).sigmoid() : shared);
    }
    const auto gradients = [&](const at::Tensor& y) {
      std::vector<at::Tensor> leaves;
      for (const Parameter& parameter : p.all()) {
        leaves.push_back(parameter.tensor);
      }
      return testing::Evaluated{y.detach(), torch::autograd::grad({y.square().sum()}, leaves)};
    };
    testing::expect_close(gradients((*layer.mlp)(x, 0.0, Context())), gradients(expected), 1e-13, "all experts");
    // Batch-invariant decoding must give the same result.
    const Context by_row{.batch_invariant = true};
    EXPECT_LE(testing::relative_error((*layer.mlp)(x, 0.0, by_row), expected), 1e-13);
  }
}

TEST(Mlp, SelectionColumnsBeginEquallyLong) {
  Layer layer(options(MlpKind::experts), 64);
  const at::Tensor lengths = layer.parameters.at("select").norm(2, at::IntArrayRef{0});
  EXPECT_LE((lengths.max() - lengths.min()).item<double>(), 1e-12);
}

TEST(Mlp, ExpertDropoutTakesWeightAway) {
  MlpOptions o = options(MlpKind::experts);
  o.expert_dropout = 1.0 - 1e-12;  // drops every expert
  Layer layer(o, 4);
  const Context context{.training = true, .random = Randomness{.seed = 1}};
  EXPECT_EQ((*layer.mlp)(at::randn({1, 3, 4}, at::kDouble), 0.0, context).abs().max().item<double>(), 0.0);
}

}  // namespace headroom::nn::mlp_test
