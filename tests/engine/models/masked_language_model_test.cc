#include "headroom/models/masked_language_model.h"

#include "engine/ops/gradients.h"
#include "one_thread.h"
#include "small_models.h"

namespace headroom::models::masked_language_model_test {

using config::ModelOptions;
using testing::relative_error;

ModelOptions tiny() {
  config::ModelOptions o = tiny::changed(tiny::model(config::ModelKind::masked_language_model), "",
                                         "norm_position=post tied_embeddings=true attention.position=learned");
  return o;
}

testing::Models kinds() {
  return testing::models_of(tiny(), {{"dense", ""},
                                     {"moa", "projection=routed_heads gate=softmax_renormalised bias=true"},
                                     {"switchall", "projection=experts position=relative",
                                      "mlp.kind=experts norm_position=pre tied_embeddings=false"},
                                     {"composed mixture", "score=gaussian_mixture composition=dynamic position=rope"}});
}

TEST(MaskedLanguageModel, LaterTokensAffectTheFirst) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(1);
    const MaskedLanguageModel model(options, 3, at::kDouble);
    const at::Tensor tokens = at::randint(23, {1, 5}, at::kLong), before = model.logits(tokens, {}, {})[0];
    tokens[0][4] = (tokens[0][4] + 1) % 23;
    EXPECT_GT(relative_error(model.logits(tokens, {}, {})[0][0], before[0]), 1e-6) << name;
  }
}

TEST(MaskedLanguageModel, LossCountsOnlyHiddenPositions) {
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(2);
    MaskedLanguageModel model(options, 3, at::kDouble);
    const at::Tensor tokens = at::randint(23, {3, 8}, at::kLong);
    const at::Tensor valid = at::ones({3, 8}, at::kBool);
    valid[1].narrow(0, 6, 2).fill_(false);
    const at::Tensor targets = at::randint(23, {3, 8}, at::kLong).masked_fill(at::rand({3, 8}).gt(0.5), -1);
    targets[1].narrow(0, 6, 2).fill_(-1);
    const at::Tensor logits = model.logits(tokens, valid, {});
    const at::Tensor expected = at::cross_entropy_loss(logits.reshape({24, -1}), targets.reshape({-1}), {},
                                                       at::Reduction::Mean, /*ignore_index=*/-1);
    const Loss loss = model.loss(tokens, valid, targets, {});
    EXPECT_NEAR(loss.cross_entropy.item<double>(), expected.item<double>(), 1e-12) << name;
    const bool balances = name == "moa" || name == "switchall";
    ASSERT_EQ(loss.regulariser.defined(), balances) << name;
    loss.total().backward();
    // A bias that all keys share cancels in the softmax, so b_k has no gradient.
    testing::expect_gradients(model.parameters(), name, {"b_k"});
    const Loss nothing = model.loss(tokens, valid, at::full({3, 8}, -1, at::kLong), {});
    EXPECT_EQ(nothing.cross_entropy.item<double>(), 0.0) << name;
  }
}

TEST(MaskedLanguageModel, BalanceLossesCarryTheirCoefficients) {
  ModelOptions options = kinds()[1].second;
  options.initialisation = config::Initialisation::glorot;  // makes MoA's routers uniform
  options.attention.of<config::RoutedHeadOptions>().switch_coefficient = 0.5;
  options.attention.of<config::RoutedHeadOptions>().z_coefficient = 0.25;
  const MaskedLanguageModel model(options, 3, at::kDouble);
  at::manual_seed(3);
  std::map<std::string, at::Tensor> losses;
  const nn::Context context{.losses = &losses};
  const at::Tensor tokens = at::randint(23, {2, 8}, at::kLong);
  const Loss loss = model.loss(tokens, {}, tokens, context);
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_NEAR(loss.regulariser.item<double>(),
              0.5 * losses.at("switch").item<double>() + 0.25 * losses.at("z").item<double>(), 1e-14);
  // Routers start uniform: each layer has the loss E sum_e (1/E) F_e = 1, and logsumexp is of E zeros.
  EXPECT_NEAR(losses.at("switch").item<double>(), 2.0, 1e-12);
  EXPECT_NEAR(losses.at("z").item<double>(), 2.0 * std::pow(std::log(4.0), 2), 1e-12);
}

TEST(MaskedLanguageModel, BadInputIsRefused) {
  const MaskedLanguageModel model(tiny(), 1);
  const at::Tensor tokens = at::ones({2, 8}, at::kLong);
  EXPECT_THROW(model.logits(at::ones({1, 9}, at::kLong), {}, {}), Error);
  EXPECT_THROW(model.logits(at::ones({8}, at::kLong), {}, {}), Error);
  EXPECT_THROW(model.logits(at::ones({1, 8}), {}, {}), Error);
  EXPECT_THROW(model.logits(tokens, at::ones({2, 7}, at::kBool), {}), Error);
  EXPECT_THROW(model.logits(tokens, at::ones({2, 8}), {}), Error);
  EXPECT_THROW(model.loss(tokens, {}, at::ones({2, 7}, at::kLong), {}), Error);
  ModelOptions other = tiny();
  other.kind = config::ModelKind::language_model;
  EXPECT_THROW(MaskedLanguageModel(other, 1), UserError);
}

}  // namespace headroom::models::masked_language_model_test
