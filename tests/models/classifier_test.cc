#include "headroom/models/classifier.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "one_thread.h"
#include "ops/gradients.h"

namespace headroom::models {
namespace {

using testing::relative_error;

config::ModelOptions tiny() {
  config::ModelOptions o;
  o.vocabulary_size = 9;
  o.n_layers = 2;
  o.d_model = 8;
  o.context_length = 7;
  o.attention.n_heads = 2;
  o.attention.d_head = 4;
  o.attention.score = config::Score::gaussian_mixture;
  o.attention.position = config::Position::none;
  o.mlp.d_hidden = 12;
  return o;
}

TEST(Classifier, PaddingChangesOnlyTheLengthOfTheMean) {
  const at::NoGradGuard no_grad;
  const Classifier model(tiny(), {.n_classes = 3, .d_hidden = 5}, 1, at::kDouble);
  const at::Tensor tokens = at::tensor({3, 5, 2, 8, 0, 0}, at::kLong).view({1, 6});
  at::Tensor longer = at::cat({tokens, at::zeros({1, 1}, at::kLong)}, 1);
  // Another batch row does not matter either.
  const at::Tensor pair = at::cat({longer, at::ones({1, 7}, at::kLong)});
  EXPECT_LE(relative_error(model.logits(pair, {}, {})[0], model.logits(longer, {}, {})[0]), 1e-13);
  EXPECT_GT(relative_error(model.logits(longer, {}, {}), model.logits(tokens, {}, {})), 1e-6);  // mean over 7, not 6
  EXPECT_THROW(model.logits(at::ones({1, 8}, at::kLong), {}, {}), Error);
}

TEST(Classifier, PairsShareOneEncoder) {
  const at::NoGradGuard no_grad;
  Classifier model(tiny(), {.n_classes = 2, .d_hidden = 5, .pair = true}, 1, at::kDouble);
  EXPECT_EQ(model.parameters().at("head.w_up").size(0), 4 * 8);
  const at::Tensor a = at::randint(1, 9, {2, 7}, at::kLong), b = at::randint(1, 9, {2, 7}, at::kLong);
  EXPECT_EQ(model.logits(a, b, {}).sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_THROW(model.logits(a, {}, {}), Error);
  config::ModelOptions remembering = tiny();
  remembering.memory_length = 7;
  EXPECT_THROW(Classifier(remembering, {}, 1), MisuseError);
}

}  // namespace
}  // namespace headroom::models
