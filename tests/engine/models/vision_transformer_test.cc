#include "headroom/models/classifier.h"

#include <cmath>

#include "engine/ops/gradients.h"
#include "one_thread.h"
#include "small_models.h"

namespace headroom::models::vision_transformer_test {

using config::ModelOptions;
using testing::relative_error;

ModelOptions tiny() {
  config::ModelOptions o =
      tiny::changed(tiny::model(config::ModelKind::vision), "",
                    "image_size=6 patch_size=2 image_channels=3 context_length=9 n_classes=5 d_head_hidden=7 "
                    "attention.position=sinusoidal");
  return o;
}

testing::Models kinds() {
  return testing::models_of(
      tiny(), {{"vit", ""},
               {"dcvit", "composition=dynamic compose_static=true bias=true"},
               {"moa learned", "projection=routed_heads position=learned", "d_head_hidden=0 head_bias=false"},
               {"mixture post", "score=gaussian_mixture position=relative", "norm_position=post"}});
}

// Gives the head, which is initialised to 0, random values.
void wake_head(VisionTransformer& model) {
  const at::NoGradGuard no_grad;
  const at::Tensor w = model.parameters().at("head.w_down");
  w.copy_(at::randn(w.sizes(), w.options()));
}

TEST(VisionTransformer, ANewModelPredictsUniformly) {
  const VisionTransformer model(tiny(), 1);
  EXPECT_EQ(model.logits(at::randn({2, 3, 6, 6}), {}).abs().max().item<float>(), 0.0F);
}

TEST(VisionTransformer, ReadsPatchesRowByRow) {
  const at::NoGradGuard no_grad;
  ModelOptions o = tiny();
  o.n_layers = 0;  // only the embedding
  o.d_head_hidden = 0;
  VisionTransformer model(o, 1, at::kDouble);
  wake_head(model);
  const nn::Parameters& p = model.parameters();
  const at::Tensor images = at::randn({2, 3, 6, 6}, at::kDouble);
  // The embedding equals a convolution with the patch as its kernel.
  const at::Tensor kernel = p.at("patch.w").t().view({12, 3, 2, 2});
  at::Tensor h = at::conv2d(images, kernel, at::Tensor(), /*stride=*/2).flatten(2).transpose(1, 2);
  h = h + grid_sinusoids(3, 12, 10000.0, at::kDouble);
  const at::Tensor expected = at::layer_norm(h, {12}).mean(1).mm(p.at("head.w_down"));
  EXPECT_LE(relative_error(model.logits(images, {}), expected), 1e-12);
}

TEST(VisionTransformer, GridPositionsAreSinesOfColumnAndRow) {
  const at::Tensor p = grid_sinusoids(3, 12, 10000.0, at::kDouble);
  ASSERT_EQ(p.sizes(), (at::IntArrayRef{9, 12}));
  for (const double row : {0.0, 1.0, 2.0}) {
    for (const double column : {0.0, 1.0, 2.0}) {
      const at::Tensor here = p[static_cast<std::int64_t>(3 * row + column)];
      const double frequency[] = {1.0, 1e-2, 1e-4};
      for (int c = 0; c < 3; ++c) {
        EXPECT_NEAR(here[c].item<double>(), std::sin(column * frequency[c]), 1e-14);
        EXPECT_NEAR(here[3 + c].item<double>(), std::cos(column * frequency[c]), 1e-14);
        EXPECT_NEAR(here[6 + c].item<double>(), std::sin(row * frequency[c]), 1e-14);
        EXPECT_NEAR(here[9 + c].item<double>(), std::cos(row * frequency[c]), 1e-14);
      }
    }
  }
  EXPECT_THROW(grid_sinusoids(3, 10, 10000.0, at::kDouble), UserError);
}

TEST(VisionTransformer, EveryPatchCountsAndOtherImagesDoNot) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(1);
    VisionTransformer model(options, 3, at::kDouble);
    wake_head(model);
    const at::Tensor images = at::randn({2, 3, 6, 6}, at::kDouble);
    const at::Tensor before = model.logits(images, {});
    EXPECT_LE(relative_error(model.logits(images.narrow(0, 0, 1), {}), before.narrow(0, 0, 1)), 1e-12) << name;
    for (std::int64_t patch = 0; patch < 9; ++patch) {
      at::Tensor changed = images.clone();
      changed[0][2][patch / 3 * 2][patch % 3 * 2 + 1] += 1.0;
      const at::Tensor after = model.logits(changed, {});
      EXPECT_GT(relative_error(after[0], before[0]), 1e-6) << name << " patch " << patch;
      EXPECT_LE(relative_error(after[1], before[1]), 1e-13) << name;
    }
  }
}

TEST(VisionTransformer, TheHiddenLayerOfTheHeadIsBounded) {
  const at::NoGradGuard no_grad;
  VisionTransformer model(tiny(), 1);
  model.parameters().at("head.w_down").fill_(1.0);
  model.parameters().at("head.w_up").fill_(0.0);
  model.parameters().at("head.b_up").fill_(0.5);
  EXPECT_NEAR(model.logits(at::randn({1, 3, 6, 6}), {})[0][0].item<float>(), 7.0 * std::tanh(0.5), 1e-5);
}

TEST(VisionTransformer, BadInputIsRefused) {
  const VisionTransformer model(tiny(), 1);
  EXPECT_THROW(model.logits(at::ones({3, 6, 6}), {}), Error);
  EXPECT_THROW(model.logits(at::ones({1, 1, 6, 6}), {}), Error);
  EXPECT_THROW(model.logits(at::ones({1, 3, 8, 8}), {}), Error);
  ModelOptions other = tiny();
  other.patch_size = 4;
  EXPECT_THROW(VisionTransformer(other, 1), UserError);
  other = tiny();
  other.d_model = 10;
  EXPECT_THROW(VisionTransformer(other, 1), UserError);
  other.kind = config::ModelKind::classifier;
  EXPECT_THROW(VisionTransformer(other, 1), UserError);
}

}  // namespace headroom::models::vision_transformer_test
