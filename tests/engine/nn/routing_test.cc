// Tests routed and gated heads, and the losses that balance a router.

#include "headroom/nn/routing.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::routing_test {

using testing::relative_error;

TEST(RoutingLosses, MatchTheirDefinitions) {
  // There are two experts and top 1. Two tokens route to expert 0; the third is padding.
  const at::Tensor prob = at::tensor({0.75, 0.25, 0.5, 0.5, 0.0, 0.0}, at::kDouble).view({3, 2});
  // P = (1.25, 0.75) / 2, F = (2, 0) / 2.
  EXPECT_NEAR(switch_loss(prob, at::tensor({2, 0}, at::kLong)).item<double>(), 2 * 0.625, 1e-15);
  // Two sequences of two tokens have two slots: slot 0 has experts {1} and {0, 2}, slot 1 {0, 2} and {1}.
  const at::Tensor index = at::tensor({1, 0, 1, 2, 0, 1, 2, 1}, at::kLong).view({4, 2});
  EXPECT_TRUE(at::equal(slot_counts(index, 2, 3), at::tensor({3.0, 3.0, 0.0}, at::kDouble)));
  // n1 = (0.25, 0.75) has the mean 0.5 and the unbiased variance 0.125.
  const at::Tensor weights = at::tensor({0.5, 0.0, 0.0, 1.5}, at::kDouble).view({2, 2});
  EXPECT_NEAR(cv_loss(weights).item<double>(), 0.125 / (0.25 + 1e-10), 1e-14);
  EXPECT_EQ(cv_loss(at::ones({4, 1}, at::kDouble)).item<double>(), 0.0);
  const at::Tensor even = at::zeros({2, 4}, at::kDouble);
  EXPECT_NEAR(z_loss(even).item<double>(), std::pow(std::log(4.0), 2), 1e-14);
  EXPECT_NEAR(entropy_loss(even).item<double>(), -std::log(4.0), 1e-14);
  // If all tokens are padding, losses are 0 instead of NaN.
  EXPECT_EQ(switch_loss(at::zeros({2, 2}, at::kDouble), at::zeros({2}, at::kLong)).item<double>(), 0.0);
  const at::Tensor none = at::zeros({2}, at::kBool);
  EXPECT_EQ(z_loss(even, none).item<double>(), 0.0);
  EXPECT_EQ(entropy_loss(even, none).item<double>(), 0.0);
  // Only the first of two tokens is valid.
  const at::Tensor score = at::tensor({1.0, 2.0, 7.0, 3.0}, at::kDouble).view({2, 2}).requires_grad_(true);
  const at::Tensor first = at::tensor({1, 0}).ne(0);
  EXPECT_NEAR(z_loss(score, first).item<double>(), z_loss(score.narrow(0, 0, 1)).item<double>(), 1e-14);
  EXPECT_NEAR(entropy_loss(score, first).item<double>(), entropy_loss(score.narrow(0, 0, 1)).item<double>(), 1e-14);
  for (const auto& loss : {z_loss, entropy_loss}) {
    for (const at::Tensor& valid : {first, none}) {
      const at::Tensor gradient = torch::autograd::grad({loss(score, valid)}, {score})[0];
      EXPECT_TRUE(gradient.isfinite().all().item<bool>());
      EXPECT_EQ(gradient[1].abs().max().item<double>(), 0.0);
    }
  }
  // The third token is padding, so slot 0 has experts {1} and {0}, slot 1 {0, 2} and {1}.
  EXPECT_TRUE(at::equal(
      slot_counts(at::tensor({1, 0, 1, 2, 2, 1, 0, 1}, at::kLong).view({4, 2}), 2, 3, at::tensor({1, 1, 0, 1}).ne(0)),
      at::tensor({2.0, 3.0, 0.0}, at::kDouble)));
}

const std::string kTwoOfFour = "gate=softmax_renormalised n_experts=4 top_k=2 d_head=3 ",
                  kRouted = kTwoOfFour + "projection=routed_heads n_heads=2 ",
                  // Two groups of four query heads; each token uses two heads of a group.
    kGrouped = kTwoOfFour + "projection=routed_queries n_heads=8 n_kv_heads=2 bias=true";

Layer random_layer(const std::string& keys) {
  return Layer(attention_options("position=none " + keys), {.d_model = 6, .context_length = 5}, at::kDouble,
               /*noise=*/1.0);
}

TEST(RoutedHeads, PaddedQueriesAreRoutedNowhere) {
  const Layer layer = random_layer(kRouted);
  ExpertUsage usage;
  std::map<std::string, at::Tensor> losses;
  const Context context{.losses = &losses, .usage = &usage};
  AttentionInput input{.x = at::randn({2, 5, 6}, at::kDouble), .valid_queries = at::arange(10).view({2, 5}).lt(7)};
  const at::Tensor y = layer.attention(input, context);
  EXPECT_EQ(y[1].narrow(0, 2, 3).abs().max().item<double>(), 0.0);
  EXPECT_GT(y[1].narrow(0, 0, 2).abs().min().item<double>(), 0.0);
  EXPECT_EQ(usage.at("select").sum().item<std::int64_t>(), 7 * 2);
  input.valid_queries = at::zeros({2, 5}, at::kBool);
  losses.clear();
  EXPECT_EQ(layer.attention(input, context).abs().max().item<double>(), 0.0);
  EXPECT_EQ(losses.at("switch").item<double>(), 0.0);
  EXPECT_TRUE(std::isfinite(losses.at("z").item<double>()));
}

TEST(RoutedHeads, NoiseIsDrawnWhileTrainingOnly) {
  const Layer layer = random_layer(kRouted + "noisy_routing=true");
  const at::Tensor x = at::randn({2, 5, 6}, at::kDouble);
  Context context;
  const at::Tensor still = layer.attention({.x = x}, context);
  EXPECT_TRUE(at::equal(layer.attention({.x = x}, context), still));
  context.training = true;
  EXPECT_THROW(layer.attention({.x = x}, context), Error);
  context.random = {.seed = 5};
  EXPECT_GT(relative_error(layer.attention({.x = x}, context), still), 1e-6);
}

Context with_losses(std::map<std::string, at::Tensor>& losses) {
  Context context{.losses = &losses};
  return context;
}

// Returns the output and all losses, with the gradients of their sum.
testing::Evaluated evaluated(const Layer& layer, const std::vector<at::Tensor>& inputs) {
  return testing::evaluate(
      [&](const std::vector<at::Tensor>& in) {
        std::map<std::string, at::Tensor> losses;
        const at::Tensor y = layer.attention({.x = in[0]}, with_losses(losses));
        return at::cat({y.flatten(), losses.at("switch").view(1), losses.at("z").view(1)});
      },
      inputs);
}

// Each group must equal a layer of routed heads with the group's parameters; outputs and losses are added.
TEST(RoutedQueries, AreTheSumOfTheirGroups) {
  const Layer layer = random_layer(kGrouped);
  const std::vector<at::Tensor> x = {at::randn({2, 5, 6}, at::kDouble)};
  testing::Evaluated sum;
  for (std::int64_t g = 0; g < 2; ++g) {
    const Layer group = random_layer(kRouted + "bias=true");
    {
      const at::NoGradGuard no_grad;
      for (const char* bank : {"w_q", "w_o", "b_q", "b_o"}) {
        group.at(bank).copy_(layer.at(bank).narrow(0, 4 * g, 4));
      }
      for (const char* shared : {"w_k", "w_v"}) {
        group.at(shared).copy_(layer.at(shared).select(1, g));
      }
      for (const char* shared : {"b_k", "b_v"}) {
        group.at(shared).copy_(layer.at(shared)[g]);
      }
      group.at("select").copy_(layer.at("select").narrow(1, 4 * g, 4));
    }
    const testing::Evaluated one = evaluated(group, x);
    sum.value = g == 0 ? one.value : sum.value + one.value;
    sum.gradients = {g == 0 ? one.gradients[0] : sum.gradients[0] + one.gradients[0]};
  }
  testing::expect_close(evaluated(layer, x), sum, 1e-13, "two groups");
}

TEST(RoutedQueries, AreShownGroupByGroup) {
  const Layer layer = random_layer(kGrouped);
  Recorder recorder({"select.*", "q", "k", "o"});
  std::map<std::string, at::Tensor> losses;
  Context context = with_losses(losses);
  context.observer = &recorder;
  layer.attention({.x = at::randn({2, 5, 6}, at::kDouble)}, context);
  const auto shape = [&](std::string_view name) { return recorder.at(name).sizes().vec(); };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape("q"), (Shape{2, 4, 5, 3}));
  EXPECT_EQ(shape("k"), (Shape{2, 2, 5, 3}));
  EXPECT_EQ(shape("o"), (Shape{2, 4, 5, 3}));
  EXPECT_EQ(shape("select.score"), (Shape{10, 2, 4}));
  EXPECT_EQ(shape("select.index"), (Shape{10, 2, 2}));
  EXPECT_EQ(shape("select.prob"), (Shape{10, 2, 4}));
  EXPECT_EQ(shape("select.count"), (Shape{2, 4}));
  EXPECT_EQ(recorder.at("select.count").sum(1)[0].item<std::int64_t>(), 10 * 2);
}

TEST(GatedHeads, AreTheDenseHeadsTimesTheirGates) {
  const std::string heads = "n_heads=3 d_head=4 top_k=2 projection=";
  const Layer gated = random_layer(heads + "gated_heads"), dense = random_layer(heads + "dense");
  const at::NoGradGuard no_grad;
  for (const Parameter& p : dense.parameters.all()) {
    p.tensor.copy_(gated.at(p.name));
  }
  const at::Tensor x = at::randn({2, 5, 6}, at::kDouble), w_o = dense.at("w_o").clone();
  const at::Tensor score = x.matmul(gated.at("select"));
  const at::Tensor best = std::get<0>(score.topk(2, -1)).narrow(-1, 1, 1);
  const at::Tensor gate = score.sigmoid() * score.ge(best).to(at::kDouble);  // [B, T, H]
  at::Tensor expected = at::zeros_like(x);
  for (std::int64_t h = 0; h < 3; ++h) {
    dense.at("w_o").zero_();
    dense.at("w_o")[h].copy_(w_o[h]);
    expected += dense.attention({.x = x}, {}) * gate.select(2, h).unsqueeze(2);
  }
  EXPECT_LE(relative_error(gated.attention({.x = x}, {}), expected), 1e-13);
}

}  // namespace headroom::nn::routing_test
