#include "training/cost/cost.h"

#include <gtest/gtest.h>

#include "headroom/config/part_options.h"
#include "small_model.h"

namespace headroom::cost::memory_test {

using namespace config;

// 2 layers, 3 sequences of 8 tokens; relu saves one hidden layer.
config::Config small_config(const std::string& keys = "") {
  config::Config config;
  config.model = tiny::model({.vocabulary = 100, .d_model = 16, .context_length = 8, .d_head = 4, .d_hidden = 32});
  tiny::set(config, "model.mlp.activation=relu train.batch_size=3 train.precision=fp32");
  return tiny::changed(config, keys);
}

std::int64_t activations(const std::string& keys = "") {
  return step_memory(small_config(keys)).activations;
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

TEST(StepMemory, DroppedWeightsAreKept) {
  const std::string dropout = "model.attention.dropout=0.1 ", linear = "model.attention.score=linear ";
  // A step stores the weights before and after dropout, for 3 sequences, 2 layers, 2 heads, 8 queries and 8 keys.
  EXPECT_EQ(activations(dropout) - activations(), 4 * 2 * 3 * 2 * 2 * 8 * 8);
  EXPECT_EQ(activations(dropout + linear), activations(linear));
}

TEST(StepMemory, FormulasWithoutAKernelKeepTheirValues) {
  constexpr std::int64_t kPairs = 4 * 3 * 2 * 2 * 8 * 8;  // bytes of 3 sequences, 2 layers, 2 heads, 8 queries and keys
  const auto with_formula = [](const std::string& position, const std::string& formula, double dropout = 0.0) {
    config::Config config = small_config();
    config.model.attention.position = position;
    config.model.attention.of<config::DotOptions>().formula = formula;
    config.model.attention.of<config::DotOptions>().learned = "b = {shape = \"head\"}";
    config.model.attention.dropout = dropout;
    return step_memory(config).activations;
  };
  const std::int64_t plain = with_formula("none", "b + s");
  EXPECT_EQ(with_formula("none", "20 * tanh(s / 20) + b"), plain);
  EXPECT_EQ(with_formula("alibi", "s + b") - plain, kPairs);  // the weights
  EXPECT_EQ(with_formula("alibi", "20 * tanh(s / 20) + b") - plain, 2 * kPairs);
  EXPECT_EQ(with_formula("alibi", "b * log(1 + exp(s))") - plain, 4 * kPairs);  // exp, 1 + exp, log
  EXPECT_EQ(with_formula("none", "s * b", 0.1) - plain, 3 * kPairs);            // s, and the weights twice
}

TEST(StepMemory, MuonKeepsNoSquaresOfWhatItMoves) {
  const std::int64_t matrices = 2 * (4 * 16 * 2 * 4 + 2 * 16 * 32);  // two layers: q, k, v, o and the MLP's
  EXPECT_EQ(step_memory(small_config()).moments - step_memory(small_config("train.optimizer=muon")).moments,
            4 * matrices);
}

TEST(StepMemory, MicroBatchesNeedLessAndKeepTheGradients) {
  const StepMemory parts = step_memory(small_config("train.accumulate=3"));
  EXPECT_EQ(3 * parts.activations, activations());
  EXPECT_EQ(parts.total, parts.parameters + parts.moments + parts.gradients + parts.activations);
}

TEST(StepMemory, ABatchOfSoManyTokensHasNoMoreSequences) {
  EXPECT_EQ(activations("train.batch_size=300 train.batch_tokens=31"), activations()) << "31 = 3 * 8 + 7";
}

TEST(StepMemory, NarrowProductsTakeHalfAndCopiesOfTheMatrices) {
  const std::int64_t matrices = count_parameters(small_config().model) - 100 * 16, tokens = 3 * 8;
  const std::int64_t wide = 2 * 2 * 16 + 16, narrow = 2 * (2 * 16 + 4 * 2 * 4 + 32) + 16;
  EXPECT_EQ(activations("train.precision=bf16"), tokens * (4 * wide + 2 * narrow) + 2 * matrices);
}

TEST(StepMemory, GrowsWithMemoryKeysAndExperts) {
  const std::string relative = "model.attention.position=relative ", memory = relative + "model.memory_length=8 ",
                    experts = memory + "model.mlp.kind=experts model.mlp.top_k=";
  // Counts the keys and values of the memory in two layers, and the memory of 3 sequences before and after.
  EXPECT_EQ(activations(memory) - activations(relative), 4 * 3 * (2 * 8 * 2 * 2 * 4 + 2 * 2 * 8 * 16));
  EXPECT_EQ(activations(experts + "4") - activations(experts + "2"), 4 * 3 * 8 * 2 * 2 * 32);
}

TEST(StepMemory, AModelOfAnySizeHasOneOrIsRefused) {
  config::Config config = small_config();
  config.model.n_layers = 64;
  config.model.d_model = 65536;
  EXPECT_GT(step_memory(config).total, std::int64_t{1} << 32);
  config.model.context_length = std::int64_t{1} << 60;
  EXPECT_THROW(step_memory(config), UserError);
}

// Expects that in each case a layer of small_model() with `common` caches `count` elements.
void expect_cached(const std::string& common, const std::vector<Counted>& cases) {
  for (const auto& [assignments, count] : cases) {
    EXPECT_EQ(decoding_cache_elements(with(small_model(), common + " " + assignments)), 2 * count) << assignments;
  }
}

constexpr std::int64_t kHeads = 4 * 3;  // elements of the keys or the values of a token

TEST(Cache, KeysAndValuesOfEveryToken) {
  expect_cached("", {{"", 5 * 2 * kHeads}, {"kind=classifier n_classes=2", 0}});
  // A decoder layer also caches the source's keys and values.
  expect_cached("kind=encoder_decoder n_decoder_layers=2", {{"", (5 + 5) * 2 * kHeads}});
  const std::string linear = "attention.score=linear attention.n_mixtures=1 attention.position=none ";
  EXPECT_EQ(decoding_cache_elements(with(small_model(), linear + "kind=encoder_decoder n_decoder_layers=2")) -
                decoding_cache_elements(with(small_model(), linear)),
            2 * 5 * 2 * kHeads);
}

TEST(Cache, BelongsToLayersWithKeys) {
  expect_cached(
      "", {{"attention.n_heads=0", 0},
           {"n_layers=4 layers=[{},{attention={n_heads=0}}]", 5 * 2 * kHeads},
           {"n_layers=6 layers=[{},{attention={share_kv=1}},{attention={share_kv=1,window=2}}]", 5 * 2 * kHeads}});
}

TEST(Cache, LocalLayersKeepOnlyTheirWindow) {
  expect_cached("attention.window=2", {{"", 2 * 2 * kHeads},
                                       {"n_layers=4 attention.window_pattern=1:1", (2 + 5) * 2 * kHeads},
                                       {"attention.window=100", 5 * 2 * kHeads}});
}

TEST(Cache, MixturesAndCompositions) {
  expect_cached("attention.score=gaussian_mixture attention.n_mixtures=3",
                {{"", 5 * (3 + 1) * kHeads}, {"attention.keys=shifted", 5 * 2 * kHeads}});
  const std::string pre = "attention.compose=[\"pre\"] ", ungated = pre + "attention.compose_gates=[\"query\"] ";
  const std::int64_t groups = 5 * 4, halves = 4 * 4;
  expect_cached("attention.composition=dynamic", {{"", 5 * (2 * kHeads + 2 * groups)},
                                                  {pre, 5 * (2 * kHeads + groups)},
                                                  {pre + "attention.compose_groups=2", 5 * (2 * kHeads + groups)},
                                                  {ungated + "attention.compose_groups=2", 5 * (2 * kHeads + halves)},
                                                  {ungated + "attention.compose_low_rank=[\"query\"]", 5 * 2 * kHeads},
                                                  {"attention.composition=static", 5 * 2 * kHeads}});
}

TEST(Cache, HeadsThatShareOrFactorTheirKeys) {
  expect_cached(
      "attention.d_head=4 attention.n_heads=4",
      {{"attention.projection=latent attention.kv_rank=6 attention.d_rotary=2", 5 * (6 + 2)},
       {"attention.projection=factored attention.kv_rank=2", 5 * 2 * 2 * (4 + 4)},
       {"attention.projection=tied attention.n_kv_heads=2", 5 * (2 * 4 + 4 / 2)},
       {"attention.composition=differential attention.n_kv_heads=2", 5 * 2 * 2 * 4},
       {"attention.composition=differential attention.differential_version=1 attention.n_kv_heads=2", 5 * 4 * 2 * 4},
       {"attention.position=forgetting", 5 * (2 * 4 * 4 + 4)}});
}

TEST(Cache, CountsBeyond63BitsAreRefused) {
  config::ModelOptions m = small_model();
  m.attention.d_head = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(decoding_cache_elements(m), UserError);
}

}  // namespace headroom::cost::memory_test
