#include "training/cost/memory.h"
#include "tiny/options.h"

#include <gtest/gtest.h>

#include <limits>

#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace memory_test {

using namespace config;

// 2 layers, 3 sequences of 8 tokens; relu saves one hidden layer.
config::Config small_config() {
  config::Config config;
  config.model = tiny::model({.vocabulary = 100, .d_model = 16, .context_length = 8, .d_head = 4, .d_hidden = 32});
  config.model.mlp.activation = config::Activation::relu;
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
  // For each token and layer: inputs and results of two norms; q, k, v and head outputs; the hidden layer. After the
  // last layer: input and result of a norm.
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
  // Keys and values of the memory in two layers; the memory of 3 sequences before and after.
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

// T = 5, L = 4, H = 4, e = 3.
config::ModelOptions small_decoder() {
  config::ModelOptions m;
  m.n_layers = 4;
  m.d_model = 10;
  m.context_length = 5;
  m.attention.n_heads = 4;
  m.attention.d_head = 3;
  m.attention.position = "none";
  return m;
}

TEST(Cache, KeysAndValuesOfEveryToken) {
  config::ModelOptions m = small_decoder();
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3));
  m.memory_length = 5;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 10 * (2 * 4 * 3));
  m.attention.n_kv_heads = 2;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 10 * (2 * 2 * 3));
  m.attention.projection = "routed_heads";
  m.attention.n_kv_heads = 0;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 10 * (2 * 3));
}

TEST(Cache, LocalLayersForget) {
  config::ModelOptions m = small_decoder();
  m.attention.window = 2;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 2 * (2 * 4 * 3));
  m.attention.window_pattern = "1:1";
  EXPECT_EQ(decoding_cache_elements(m), 2 * (2 + 5) * (2 * 4 * 3));
  m.attention.window = 100;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, MixtureKeys) {
  config::ModelOptions m = small_decoder();
  m.attention.score = "gaussian_mixture";
  m.attention.n_mixtures = 3;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * ((3 + 1) * 4 * 3));
  m.attention.keys = Keys::shifted;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, KeySideOfTheComposition) {
  config::ModelOptions m = small_decoder();
  m.attention.composition = "dynamic";
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3 + 10 * 4));
  m.attention.compose = {"pre"};
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3 + 5 * 4));
  m.attention.compose_groups = 2;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3 + 5 * 4));
  m.attention.compose_gates = {"query"};
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3 + 4 * 4));
  m.attention.compose_low_rank = {"query"};
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3));
  m.attention.composition = "static";
  m.attention.compose_low_rank = {"key"};
  EXPECT_EQ(decoding_cache_elements(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, LinearAttentionKeepsAState) {
  config::ModelOptions m = small_decoder();
  m.attention.score = "linear";
  EXPECT_EQ(decoding_cache_elements(m), 4 * 4 * (3 * 3 + 3));
  m.context_length = 5000;
  EXPECT_EQ(decoding_cache_elements(m), 4 * 4 * (3 * 3 + 3));
  m.context_length = m.memory_length = 5;  // with memory the tokens are cached one by one
  EXPECT_EQ(decoding_cache_elements(m), 4 * 10 * ((2 + 1) * 4 * 3));
}

TEST(Cache, OtherKinds) {
  config::ModelOptions m = small_decoder();
  m.kind = ModelKind::encoder_decoder;
  m.n_decoder_layers = 3;
  EXPECT_EQ(decoding_cache_elements(m), 3 * (5 + 5) * (2 * 4 * 3));
  m.kind = ModelKind::classifier;
  EXPECT_EQ(decoding_cache_elements(m), 0);
}

TEST(Cache, CountsBeyond63BitsAreRefused) {
  config::ModelOptions m = small_decoder();
  m.attention.d_head = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(decoding_cache_elements(m), UserError);
}

}  // namespace memory_test
}  // namespace headroom::cost
