#include "training/cost/memory.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace memory_test {

// 2 layers, 3 sequences of 8 tokens; relu keeps one hidden layer.
config::Config small_config() {
  config::Config config;
  config::ModelOptions& model = config.model;
  model.n_layers = 2;
  model.d_model = 16;
  model.context_length = 8;
  model.vocabulary_size = 100;
  model.attention.n_heads = 2;
  model.attention.d_head = 4;
  model.mlp.d_hidden = 32;
  model.mlp.activation = config::Activation::relu;
  config.train.batch_size = 3;
  config.train.precision = config::Precision::fp32;
  return config;
}

TEST(StepMemory, IsCountedByHand) {
  const config::Config config = small_config();
  const StepMemory bytes = step_memory(config);
  const std::int64_t parameters = count_parameters(config.model);
  EXPECT_EQ(bytes.parameters, 4 * parameters);
  EXPECT_EQ(bytes.gradients, 4 * parameters);
  EXPECT_EQ(bytes.moments, 8 * parameters);
  // A token of a layer: two norms' inputs and results; q, k, v and what the heads give; the hidden layer. After the
  // last layer: a norm's input and result.
  const std::int64_t layer = 2 * 2 * 16 + 4 * 2 * 4 + 32, last = 2 * 16;
  EXPECT_EQ(bytes.activations, 4 * 3 * 8 * (2 * layer + last));
  EXPECT_EQ(bytes.total, bytes.parameters + bytes.moments + std::max(bytes.gradients, bytes.activations));
}

TEST(StepMemory, MuonKeepsNoSquaresOfWhatItMoves) {
  config::Config config = small_config();
  const std::int64_t adamw = step_memory(config).moments;
  config.train.optimizer = config::Optimizer::muon;
  const std::int64_t matrices = 2 * (4 * 16 * 2 * 4 + 2 * 16 * 32);  // two layers: q, k, v, o and the MLP's
  EXPECT_EQ(adamw - step_memory(config).moments, 4 * matrices);
}

TEST(StepMemory, MicroBatchesNeedLessAndKeepTheGradients) {
  config::Config config = small_config();
  const StepMemory whole = step_memory(config);
  config.train.accumulate = 3;
  const StepMemory parts = step_memory(config);
  EXPECT_EQ(3 * parts.activations, whole.activations);
  EXPECT_EQ(parts.total, parts.parameters + parts.moments + parts.gradients + parts.activations);
}

TEST(StepMemory, ABatchOfSoManyTokensHasNoMoreSequences) {
  config::Config config = small_config();
  const std::int64_t three = step_memory(config).activations;
  config.train.batch_size = 300;
  config.train.batch_tokens = 3 * 8 + 7;
  EXPECT_EQ(step_memory(config).activations, three);
}

TEST(StepMemory, NarrowProductsTakeHalfAndCopiesOfTheMatrices) {
  config::Config config = small_config();
  const std::int64_t matrices = count_parameters(config.model) - 100 * 16, tokens = 3 * 8;
  config.train.precision = config::Precision::bf16;
  const std::int64_t wide = 2 * 2 * 16 + 16, narrow = 2 * (2 * 16 + 4 * 2 * 4 + 32) + 16;
  EXPECT_EQ(step_memory(config).activations, tokens * (4 * wide + 2 * narrow) + 2 * matrices);
}

TEST(StepMemory, GrowsWithMemoryKeysAndExperts) {
  config::Config config = small_config();
  config.model.attention.position = "relative";
  const std::int64_t before = step_memory(config).activations;
  config.model.memory_length = 8;
  // Keys and values of the memory in two layers; what is carried, before and after, of 3 sequences.
  EXPECT_EQ(step_memory(config).activations - before, 4 * 3 * (2 * 8 * 2 * 2 * 4 + 2 * 2 * 8 * 16));
  config.model.mlp.kind = config::MlpKind::experts;
  config.model.mlp.top_k = 4;
  const std::int64_t of_experts = step_memory(config).activations;
  config.model.mlp.top_k = 2;
  EXPECT_EQ(of_experts - step_memory(config).activations, 4 * 3 * 8 * 2 * 2 * 32);
}

TEST(StepMemory, AModelOfAnySizeHasOneOrIsRefused) {
  config::Config config = small_config();
  config.model.n_layers = config.model.d_model = 65536;
  EXPECT_GT(step_memory(config).total, std::int64_t{1} << 40);
  config.model.context_length = std::int64_t{1} << 60;
  EXPECT_THROW(step_memory(config), UserError);
}

}  // namespace memory_test
}  // namespace headroom::cost
