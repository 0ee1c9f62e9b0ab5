#include "headroom/models/classifier.h"

#include <gtest/gtest.h>

#include "engine/ops/gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::models {
namespace classifier_test {

using testing::relative_error;

config::ModelOptions tiny() {
  config::ModelOptions o;
  o.vocabulary_size = 9;
  o.n_layers = 2;
  o.d_model = 8;
  o.context_length = 7;
  o.attention.n_heads = 2;
  o.attention.d_head = 4;
  o.attention.score = "gaussian_mixture";
  o.attention.position = "learned";
  o.kind = config::ModelKind::classifier;
  o.n_classes = 3;
  o.d_head_hidden = 5;
  o.mlp.d_hidden = 12;
  return o;
}

TEST(Classifier, PaddingChangesOnlyTheLengthOfTheMean) {
  const at::NoGradGuard no_grad;
  const Classifier model(tiny(), 1, at::kDouble);
  const at::Tensor tokens = at::tensor({3, 5, 2, 8, 0, 0}, at::kLong).view({1, 6});
  at::Tensor longer = at::cat({tokens, at::zeros({1, 1}, at::kLong)}, 1);
  // Nor does another row of the batch.
  const at::Tensor pair = at::cat({longer, at::ones({1, 7}, at::kLong)});
  EXPECT_LE(relative_error(model.logits(pair, {}, {})[0], model.logits(longer, {}, {})[0]), 1e-13);
  EXPECT_GT(relative_error(model.logits(longer, {}, {}), model.logits(tokens, {}, {})), 1e-6);  // mean over 7, not 6
  EXPECT_THROW(model.logits(at::ones({1, 8}, at::kLong), {}, {}), Error);
}

TEST(Classifier, PairsShareOneEncoder) {
  const at::NoGradGuard no_grad;
  config::ModelOptions options = tiny();
  options.paired = true;
  Classifier model(options, 1, at::kDouble);
  EXPECT_EQ(model.parameters().at("head.w_up").size(0), 4 * 8);
  const at::Tensor a = at::randint(1, 9, {2, 7}, at::kLong), b = at::randint(1, 9, {2, 7}, at::kLong);
  EXPECT_EQ(model.logits(a, b, {}).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_THROW(model.logits(a, {}, {}), Error);
  options.kind = config::ModelKind::language_model;
  EXPECT_THROW(Classifier(options, 1), UserError);
}

}  // namespace classifier_test
}  // namespace headroom::models
