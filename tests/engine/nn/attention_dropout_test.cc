// Weights of keys that are left out while training.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "headroom/nn/attention.h"

namespace headroom::nn {
namespace attention_dropout_test {

constexpr std::int64_t kRows = 4, kTokens = 37, kWidth = 24, kHeads = 3;
constexpr double kDropped = 0.3;

struct Layer {
  Parameters parameters;
  std::unique_ptr<Attention> attention;
  explicit Layer(const char* score, const char* composition) {
    config::AttentionOptions o;
    o.n_heads = kHeads;
    o.d_head = 8;
    o.score = score;
    o.composition = composition;
    o.dropout = kDropped;
    attention = std::make_unique<Attention>(
        o, AttentionPlace{.d_model = kWidth, .context_length = kTokens},
        Builder(parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}), at::kDouble));
  }
};

at::Tensor input() {
  return at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2}), at::kDouble);
}

Context training() {
  Context context;
  context.training = true;
  context.random = Randomness{.seed = 7, .rows = kRows};
  return context;
}

class AttentionDropout : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

// Each weight that was there is gone or 1 / (1 - p) times as large; p of them are gone.
TEST_P(AttentionDropout, LeavesWeightsOut) {
  const Layer layer(GetParam().first, GetParam().second);
  const auto weights = [&](Context context) {
    Recorder recorder({"probs"});
    context.observer = &recorder;
    (*layer.attention)({.x = input()}, context);
    return recorder.at("probs");
  };
  const at::Tensor whole = weights(Context{}), dropped = weights(training());
  const at::Tensor seen = whole.gt(0.0), gone = dropped.eq(0.0).logical_and(seen);
  EXPECT_TRUE(at::allclose(dropped, (whole / (1.0 - kDropped)).masked_fill(gone, 0.0)));
  const double n = seen.sum().item<double>(), share = gone.sum().item<double>() / n;
  EXPECT_NEAR(share, kDropped, 5.0 * std::sqrt(kDropped * (1.0 - kDropped) / n));
  EXPECT_FALSE(gone[0].equal(gone[1])) << "rows of a batch share no mask";
}

// Evaluation, and the gradient while training, which must know the same mask.
TEST_P(AttentionDropout, IsForTrainingOnly) {
  const Layer layer(GetParam().first, GetParam().second);
  const at::Tensor x = input().requires_grad_(true);
  const auto run = [&](const Context& context) { return (*layer.attention)({.x = x}, context); };
  EXPECT_TRUE(run(Context{}).equal(run(Context{})));
  EXPECT_TRUE(run(training()).equal(run(training()))) << "the mask is of the seed";
  EXPECT_FALSE(at::allclose(run(training()), run(Context{})));
  const at::Tensor direction = input().sin(), weight = input().cos();
  constexpr double kStep = 1e-6;
  const at::Tensor slope = ((*layer.attention)({.x = x.detach() + kStep * direction}, training()) -
                            (*layer.attention)({.x = x.detach() - kStep * direction}, training()))
                               .mul(weight)
                               .sum() /
                           (2.0 * kStep);
  run(training()).mul(weight).sum().backward();
  const double analytic = (x.grad() * direction).sum().item<double>();
  EXPECT_NEAR(analytic, slope.item<double>(), 1e-6 * (1.0 + std::abs(analytic)));
}

INSTANTIATE_TEST_SUITE_P(Scores, AttentionDropout,
                         ::testing::Values(std::pair("dot", "none"), std::pair("dot", "dynamic"),
                                           std::pair("gaussian_mixture", "none"), std::pair("sigmoid", "none")),
                         [](const auto& pair) { return std::string(pair.param.first) + "_" + pair.param.second; });

TEST(AttentionDropout, HasTheReferenceOnly) {
  const Layer layer("dot", "none");
  Context context = training();
  context.implementation = Implementation::fused;
  EXPECT_THROW((*layer.attention)({.x = input()}, context), UserError);
}

}  // namespace attention_dropout_test
}  // namespace headroom::nn
