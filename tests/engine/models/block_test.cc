#include "engine/models/block.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace headroom::models::block_test {

constexpr std::int64_t kRows = 3, kTokens = 5, kWidth = 16;

// In this block, attention outputs 0, and the MLP's output has dropout 0.5.
struct Half {
  nn::Parameters parameters;
  std::unique_ptr<Block> block;

  explicit Half(double inside, bool output_norms = false) {
    config::ModelOptions o;
    o.d_model = kWidth;
    o.dropout = 0.5;
    o.attention.n_heads = 2;
    o.attention.d_head = 4;
    o.mlp.d_hidden = 24;
    o.mlp.dropout = inside;
    o.output_norms = output_norms;
    block = std::make_unique<Block>(o, nn::AttentionPlace{.d_model = kWidth, .context_length = kTokens},
                                    nn::Builder(parameters, nn::ParameterSource(1, at::kDouble)));
    const at::NoGradGuard no_grad;
    parameters.at("attention.w_o").zero_();
  }

  // Returns the MLP's output.
  at::Tensor added(const at::Tensor& h, bool training) const {
    const nn::Context context{.training = training, .random = nn::Randomness{.seed = 3, .rows = kRows}};
    const at::NoGradGuard no_grad;
    return (*block)(BlockInput{.h = h}, context) - h;
  }
};

// Without hidden dropout, each output element is either 0 or doubled.
TEST(Block, TheMlpsHiddenLayerHasSeparateDropout) {
  const at::Tensor h =
      at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2}), at::kDouble);
  const auto doubled_or_dropped = [&](const Half& half) {
    const at::Tensor y = half.added(h, false), dropped = half.added(h, true);
    const at::Tensor as_whole = (dropped - 2.0 * y).abs().lt(1e-12).logical_or(dropped.abs().lt(1e-12));
    EXPECT_GT(dropped.abs().lt(1e-12).sum().item<std::int64_t>(), 0);
    return as_whole.to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(doubled_or_dropped(Half(0.0)), 1.0);
  EXPECT_LT(doubled_or_dropped(Half(0.5)), 0.7);
  EXPECT_TRUE(Half(-1.0).added(h, true).equal(Half(0.5).added(h, true)));  // unset: model.dropout
  EXPECT_FALSE(Half(0.1).added(h, true).equal(Half(0.5).added(h, true)));
}

// Both outputs are normalised: attention's stays 0, and the MLP's has mean 0 and variance 1.
TEST(Block, OutputNormsComeBeforeTheAddition) {
  const at::Tensor h =
      at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2}), at::kDouble);
  const Half half(0.0, /*output_norms=*/true);
  const at::Tensor added = half.added(h, false);
  EXPECT_LT(added.mean(-1).abs().max().item<double>(), 1e-12);
  EXPECT_LT((added.square().mean(-1) - 1.0).abs().max().item<double>(), 1e-3);
  const at::NoGradGuard no_grad;
  half.parameters.at("norm_2_out.scale").fill_(3.0);
  EXPECT_TRUE(half.added(h, false).allclose(added * 3.0));
}

}  // namespace headroom::models::block_test
