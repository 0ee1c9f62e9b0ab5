#include "headroom/models/model.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "headroom/models/language_model.h"
#include "tiny/options.h"

namespace headroom::models::model_test {

// Returns a small model of the given kind.
config::ModelOptions small(config::ModelKind kind) {
  config::ModelOptions o =
      tiny::model({.vocabulary = 23, .d_model = 16, .context_length = 9, .d_head = 8, .d_hidden = 24});
  o.kind = kind;
  o.attention.position = "sinusoidal";
  if (o.has_classes()) {
    o.n_classes = 3;
  }
  if (kind == config::ModelKind::vision) {
    o.image_size = 6;
    o.patch_size = 2;
    o.image_channels = 1;
  }
  return o;
}

class EveryKind : public ::testing::TestWithParam<config::ModelKind> {};

TEST_P(EveryKind, TrainsThroughTheCommonInterface) {
  const config::ModelOptions options = small(GetParam());
  const std::unique_ptr<Model> model = make_model(options, 1);
  EXPECT_EQ(model->options().kind, GetParam());
  const Batch batch = model->example(4, 1);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_GT(batch.tokens, 0);
  EXPECT_EQ(batch.targets.size(), 4U);
  Memory memory;
  const Loss loss = model->loss(batch, memory, {});
  // With random targets, the loss is near log(classes); if the head is initialised to 0, it is equal.
  const double choices = static_cast<double>(options.has_classes() ? options.n_classes : options.vocabulary_size);
  EXPECT_NEAR(loss.cross_entropy.item<double>(), std::log(choices), 1.0);
  EXPECT_TRUE(memory.layers.empty());
  loss.total().backward();
  std::int64_t reached = 0;
  for (const nn::Parameter& parameter : model->parameters().all()) {
    reached += parameter.tensor.grad().defined() ? 1 : 0;
  }
  EXPECT_GT(reached, 2);
}

TEST_P(EveryKind, RowsAreIndependentExamples) {
  const std::unique_ptr<Model> model = make_model(small(GetParam()), 1);
  const at::NoGradGuard no_grad;
  const Batch batch = model->example(4, 1);
  Memory memory;
  const double whole = model->loss(batch, memory, {}).cross_entropy.item<double>();
  double sum = 0.0;
  std::int64_t tokens = 0;
  for (const std::int64_t row : {0, 2}) {
    const Batch part = batch.narrow(row, 2);
    tokens += part.tokens;
    sum += model->loss(part, memory, {}).cross_entropy.item<double>() * static_cast<double>(part.n_targets());
  }
  EXPECT_NEAR(sum / static_cast<double>(batch.n_targets()), whole, 1e-6 * std::abs(whole) + 1e-6);
  EXPECT_EQ(tokens, batch.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryKind,
                         ::testing::Values(config::ModelKind::language_model, config::ModelKind::masked_language_model,
                                           config::ModelKind::encoder_decoder, config::ModelKind::classifier,
                                           config::ModelKind::vision),
                         [](const auto& test) { return std::string(config::name_of(test.param)); });

TEST(Batch, NamesMissingFields) {
  const std::unique_ptr<Model> model = make_model(small(config::ModelKind::classifier), 1);
  Batch batch = model->example(2, 1);
  batch.tensors.erase("label");
  Memory memory;
  EXPECT_THROW(model->loss(batch, memory, {}), Error);
  EXPECT_FALSE(batch.find("label").defined());
}

TEST(Memory, SplitsAndJoinsByRows) {
  Memory memory;
  memory.layers = {at::arange(24, at::kFloat).view({4, 3, 2}), at::ones({4, 3, 2})};
  const Memory again = Memory::join({memory.narrow(0, 1), memory.narrow(1, 3)});
  ASSERT_EQ(again.layers.size(), 2U);
  EXPECT_TRUE(at::equal(again.layers[0], memory.layers[0]));
  EXPECT_TRUE(Memory::join({Memory(), Memory()}).layers.empty());
}

TEST(AsLanguageModel, RefusesOtherKindsOfModel) {
  EXPECT_NO_THROW(as_language_model(*make_model(small(config::ModelKind::language_model), 1), "generate"));
  EXPECT_THROW(as_language_model(*make_model(small(config::ModelKind::vision), 1), "generate"), UserError);
}

}  // namespace headroom::models::model_test
