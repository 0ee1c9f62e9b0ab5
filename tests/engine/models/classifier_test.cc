#include "headroom/models/classifier.h"

#include "engine/ops/gradients.h"
#include "one_thread.h"
#include "tiny/options.h"

namespace headroom::models::classifier_test {

using testing::relative_error;

config::ModelOptions small() {
  config::ModelOptions o =
      tiny::model({.vocabulary = 9, .d_model = 8, .context_length = 7, .d_head = 4, .d_hidden = 12});
  o.attention.score = "gaussian_mixture";
  o.attention.position = "learned";
  o.kind = config::ModelKind::classifier;
  o.n_classes = 3;
  o.d_head_hidden = 5;
  return o;
}

TEST(Classifier, PaddingChangesOnlyTheLengthOfTheMean) {
  const at::NoGradGuard no_grad;
  const Classifier model(small(), 1, at::kDouble);
  const at::Tensor tokens = at::tensor({3, 5, 2, 8, 0, 0}, at::kLong).view({1, 6});
  at::Tensor longer = at::cat({tokens, at::zeros({1, 1}, at::kLong)}, 1);
  // The other rows of a batch do not change the result.
  const at::Tensor pair = at::cat({longer, at::ones({1, 7}, at::kLong)});
  EXPECT_LE(relative_error(model.logits(pair, {}, {})[0], model.logits(longer, {}, {})[0]), 1e-13);
  EXPECT_GT(relative_error(model.logits(longer, {}, {}), model.logits(tokens, {}, {})), 1e-6);  // mean of 7, not 6
  EXPECT_THROW(model.logits(at::ones({1, 8}, at::kLong), {}, {}), Error);
}

TEST(Classifier, PairsShareOneEncoder) {
  const at::NoGradGuard no_grad;
  config::ModelOptions options = small();
  options.paired = true;
  Classifier model(options, 1, at::kDouble);
  EXPECT_EQ(model.parameters().at("head.w_up").size(0), 4 * 8);
  const at::Tensor a = at::randint(1, 9, {2, 7}, at::kLong), b = at::randint(1, 9, {2, 7}, at::kLong);
  EXPECT_EQ(model.logits(a, b, {}).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_THROW(model.logits(a, {}, {}), Error);
  options.kind = config::ModelKind::language_model;
  EXPECT_THROW(Classifier(options, 1), UserError);
}

}  // namespace headroom::models::classifier_test
