// count_parameters() against sums over the tensor shapes of small models.
#include <gtest/gtest.h>

#include <limits>

#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/core/error.h"
#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace parameters_test {

using namespace config;

constexpr std::int64_t kEmbedding = 7 * 10, kHead = 10 * 7, kHeadBias = 7, kLayerNorm = 10 + 10;
constexpr std::int64_t kAttention = 4 * (10 * 4 * 3);
constexpr std::int64_t kMlp = 10 * 11 + 11 + 11 * 10 + 10;
constexpr std::int64_t kBase = kEmbedding + kHead + kHeadBias + kLayerNorm + 2 * (2 * kLayerNorm + kAttention + kMlp);

TEST(Parameters, DenseModelIsTheSumOfItsTensors) {
  EXPECT_EQ(count_parameters(small_model()), kBase);
}

TEST(Parameters, TiedEmbeddingsShareOneTable) {
  ModelOptions m = small_model();
  m.tied_embeddings = true;
  EXPECT_EQ(count_parameters(m), kBase - kHead);
  m.head_bias = false;
  EXPECT_EQ(count_parameters(m), kBase - kHead - kHeadBias);
}

TEST(Parameters, RmsNormsHaveNoBias) {
  ModelOptions m = small_model();
  m.norm = Norm::rms;
  EXPECT_EQ(count_parameters(m), kBase - 5 * 10);
}

TEST(Parameters, PostNormAndParallelBlocksHaveTheSameNorms) {
  ModelOptions m = small_model();
  m.norm_position = NormPosition::post;
  EXPECT_EQ(count_parameters(m), kBase);
  m.norm_position = NormPosition::pre;
  m.arrangement = Arrangement::parallel;
  EXPECT_EQ(count_parameters(m), kBase);
}

TEST(Parameters, MlpKinds) {
  ModelOptions m = small_model();
  m.mlp.bias = false;
  EXPECT_EQ(count_parameters(m), kBase - 2 * (11 + 10));
  m.mlp.kind = MlpKind::gated;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (3 * 10 * 11 - kMlp));
  m.mlp.bias = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (3 * 10 * 11 + 11 + 11 + 10 - kMlp));
  m.mlp.kind = MlpKind::experts;
  m.mlp.n_experts = 6;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (6 * 10 * 11 + 6 * 11 * 10 + 10 * 6 - kMlp));
}

TEST(Parameters, AttentionBiases) {
  ModelOptions m = small_model();
  m.attention.bias = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (3 * 4 * 3 + 10));
  m.attention.n_kv_heads = 2;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (4 * 3 + 2 * (2 * 3) + 10 - 2 * (2 * 10 * 3)));
}

TEST(Parameters, GroupedKeysAndValues) {
  ModelOptions m = small_model();
  m.attention.n_kv_heads = 1;
  EXPECT_EQ(count_parameters(m), kBase - 2 * (2 * 3 * 10 * 3));
}

TEST(Parameters, PositionsScaleAndQueryKeyNorm) {
  ModelOptions m = small_model();
  m.attention.position = "learned";
  EXPECT_EQ(count_parameters(m), kBase + 5 * 10);
  m.attention.position = "rope";
  EXPECT_EQ(count_parameters(m), kBase);
  m.attention.position = "sinusoidal";
  EXPECT_EQ(count_parameters(m), kBase);
  m.attention.position = "relative";
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3));
  m.attention.of<config::PositionOptions>().position_bias = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3));
  m.attention.scale = Scale::learned;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3 + 1));
  m.attention.qk_norm = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3 + 1 + 2 * 3));
}

TEST(Parameters, ExpertsInEveryCombination) {
  for (int combination = 0; combination < 16; ++combination) {
    ModelOptions m = small_model();
    m.attention.projection = "experts";
    m.attention.of<config::RoutingOptions>().n_experts = 5;
    m.attention.of<config::ExpertOptions>().experts.clear();
    const char* const names[] = {"q", "k", "v", "o"};
    std::int64_t projections = 0;
    for (int i = 0; i < 4; ++i) {
      const bool bank = (combination >> i & 1) != 0;
      projections += (bank ? 5 : 1) * 10 * 4 * 3;
      if (bank) {
        m.attention.of<config::ExpertOptions>().experts.emplace_back(names[i]);
      }
    }
    const bool source = (combination & 0b0110) != 0, destination = (combination & 0b1001) != 0;
    const std::int64_t selection = 10 * 4 * 5;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source + destination) * selection - kAttention))
        << "combination " << combination;
    m.attention.of<config::ExpertOptions>().shared_selection = true;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source || destination) * selection - kAttention))
        << "shared, combination " << combination;
  }
}

TEST(Parameters, RoutedHeadsShareKeysValuesAndPositions) {
  ModelOptions m = small_model();
  m.attention.projection = "routed_heads";
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 4;
  const std::int64_t routed = 2 * (6 * 10 * 3) + 2 * (10 * 3) + 10 * 6;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (routed - kAttention));
  m.attention.position = "relative";
  EXPECT_EQ(count_parameters(m), kBase + 2 * (routed + 10 * 3 - kAttention));
}

TEST(Parameters, RoutedHeadsBringBiasesAndNoise) {
  ModelOptions m = small_model();
  m.attention.projection = "routed_heads";
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 4;
  m.attention.position = "relative";
  const std::int64_t before = count_parameters(m);
  m.attention.bias = true;  // b_q [E,e], b_k, b_v [e], b_o [E,d]
  EXPECT_EQ(count_parameters(m), before + 2 * (6 * 3 + 3 + 3 + 6 * 10));
  m.attention.bias = false;
  m.attention.of<config::PositionOptions>().position_bias = true;  // u, v [1,e]
  EXPECT_EQ(count_parameters(m), before + 2 * (2 * 3));
  m.attention.of<config::PositionOptions>().position_bias = false;
  m.attention.of<config::RoutedHeadOptions>().noisy_routing = true;
  EXPECT_EQ(count_parameters(m), before + 2 * (10 * 6));
}

TEST(Parameters, GatedHeadsAreDenseWithASelection) {
  ModelOptions m = small_model();
  m.attention.projection = "gated_heads";
  m.attention.of<config::RoutingOptions>().top_k = 2;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4));
}

TEST(Parameters, MixtureKeys) {
  ModelOptions m = small_model();
  m.attention.score = "gaussian_mixture";
  m.attention.of<config::MixtureOptions>().n_mixtures = 3;
  m.attention.n_kv_heads = 2;
  const std::int64_t grouped = kBase - 2 * (2 * 2 * 10 * 3);
  const std::int64_t more_keys = 2 * (10 * 2 * 3);  // two projections [d,G,e] more than the first
  const auto count = [&](Prior prior, Keys keys) {
    m.attention.of<config::MixtureOptions>().prior = prior;
    m.attention.of<config::MixtureOptions>().keys = keys;
    return count_parameters(m);
  };
  EXPECT_EQ(count(Prior::none, Keys::own), grouped + 2 * more_keys);
  EXPECT_EQ(count(Prior::layer, Keys::own), grouped + 2 * (more_keys + 3));
  EXPECT_EQ(count(Prior::head, Keys::own), grouped + 2 * (more_keys + 3 * 2));
  EXPECT_EQ(count(Prior::head_position, Keys::own), grouped + 2 * (more_keys + 3 * 2 * 5));
  EXPECT_EQ(count(Prior::head, Keys::shifted), grouped + 2 * (3 * 2 * 3 + 3 * 2));
  EXPECT_EQ(count(Prior::head, Keys::single), grouped);
  m.memory_length = 5;
  EXPECT_EQ(count(Prior::head_position, Keys::shifted), grouped + 2 * (3 * 2 * 3 + 3 * 2 * 10));
  m.attention.of<config::MixtureOptions>().prior_update = PriorUpdate::soft_e;  // a state, not a parameter
  EXPECT_EQ(count(Prior::head_position, Keys::shifted), grouped + 2 * (3 * 2 * 3));
  m.attention.of<config::MixtureOptions>().prior_update = PriorUpdate::gradient;
  m.attention.of<config::MixtureOptions>().mixing = Mixing::max;
  EXPECT_EQ(count(Prior::head, Keys::shifted), grouped + 2 * (3 * 2 * 3));
  m.attention.bias = true;  // b_k [R,G,e] with own keys
  const std::int64_t biases = 4 * 3 + 2 * 3 + 10;
  EXPECT_EQ(count(Prior::head, Keys::shifted), grouped + 2 * (3 * 2 * 3 + biases + 2 * 3));
  EXPECT_EQ(count(Prior::head, Keys::own), grouped + 2 * (more_keys + biases + 3 * 2 * 3));
}

TEST(Parameters, LinearAttentionHasMixtureKeysToo) {
  ModelOptions m = small_model();
  m.attention.score = "linear";
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4));
  m.attention.of<config::MixtureOptions>().keys = Keys::single;
  EXPECT_EQ(count_parameters(m), kBase);
}

TEST(Parameters, MixtureKeysOfExpertsAndRoutedHeads) {
  ModelOptions m = small_model();
  m.attention.score = "gaussian_mixture";
  m.attention.of<config::MixtureOptions>().prior = Prior::none;
  m.attention.projection = "experts";
  m.attention.of<config::ExpertOptions>().experts = {"k"};
  m.attention.of<config::RoutingOptions>().n_experts = 5;
  // w_k [R,H,E,d,e], one selection.
  EXPECT_EQ(count_parameters(m), kBase + 2 * ((2 * 5 - 1) * 10 * 4 * 3 + 10 * 4 * 5));
  m.attention.of<config::MixtureOptions>().keys = Keys::shifted;
  EXPECT_EQ(count_parameters(m), kBase + 2 * ((5 - 1) * 10 * 4 * 3 + 2 * 4 * 3 + 10 * 4 * 5));
  m.attention.projection = "routed_heads";
  m.attention.of<config::MixtureOptions>().keys = Keys::own;
  m.attention.bias = true;
  const std::int64_t routed = 2 * (5 * 10 * 3) + (2 + 1) * (10 * 3) + 10 * 5;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (routed + 5 * 3 + 2 * 3 + 3 + 5 * 10 - kAttention));
}

TEST(Parameters, Composition) {
  ModelOptions m = small_model();
  AttentionOptions& a = m.attention;
  a.of<config::CompositionOptions>().compose_groups = 2;  // m = 2 heads a group
  a.composition = "static";
  EXPECT_EQ(count_parameters(m), kBase + 2 * 2 * (2 * 2 * 2));
  a.composition = "dynamic";
  a.of<config::CompositionOptions>().compose_rank = 3;
  const std::int64_t hidden = 2 * 3 * 2;
  const std::int64_t low_rank = 2 * 10 * hidden + 2 * hidden * 2 * 3 * 2, gate = 10 * 4;  // w1 [2,d,I], w2 [2,I,2,3,2]
  EXPECT_EQ(count_parameters(m), kBase + 2 * 2 * 2 * (low_rank + gate));
  a.of<config::CompositionOptions>().compose = {"post"};
  EXPECT_EQ(count_parameters(m), kBase + 2 * 2 * (low_rank + gate));
  a.of<config::CompositionOptions>().compose_gates = {"key"};
  EXPECT_EQ(count_parameters(m), kBase + 2 * (2 * low_rank + gate));
  a.of<config::CompositionOptions>().compose_low_rank = {};
  EXPECT_EQ(count_parameters(m), kBase + 2 * gate);
  a.of<config::CompositionOptions>().compose_static = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (gate + 2 * 2 * 2));
}

TEST(Parameters, CompositionAsThePaperCountsIt) {
  for (const std::int64_t rank : {1, 2, 4}) {
    for (const std::int64_t groups : {1, 2, 4}) {
      ModelOptions m = small_model();
      const std::int64_t before = count_parameters(m);
      m.attention.composition = "dynamic";
      m.attention.of<config::CompositionOptions>().compose_rank = rank;
      m.attention.of<config::CompositionOptions>().compose_groups = groups;
      const std::int64_t h = 4, d = 10;
      EXPECT_EQ(count_parameters(m) - before, 2 * (8 * d * h * rank + 16 * h * h * rank * rank / groups + 4 * d * h));
    }
  }
}

TEST(Parameters, AdaptiveSoftmaxHasALogitAClass) {
  ModelOptions m = small_model();
  m.adaptive_cutoffs = {2, 3, 5};
  EXPECT_EQ(count_parameters(m), kBase + 3 * (10 + 1));
}

TEST(Parameters, MaskedLanguageModel) {
  ModelOptions m = small_model();
  m.kind = ModelKind::masked_language_model;
  EXPECT_EQ(count_parameters(m), kBase + 2 * kLayerNorm + 10 * 10 + 10);
}

TEST(Parameters, EncoderDecoder) {
  ModelOptions m = small_model();
  m.kind = ModelKind::encoder_decoder;
  m.tied_embeddings = true;
  m.head_bias = false;
  m.norm_position = NormPosition::post;
  const std::int64_t encoder = kAttention + kMlp + 2 * kLayerNorm, decoder = 2 * kAttention + kMlp + 3 * kLayerNorm;
  EXPECT_EQ(count_parameters(m), kEmbedding + 2 * encoder + 2 * decoder);
  m.n_decoder_layers = 3;
  EXPECT_EQ(count_parameters(m), kEmbedding + 2 * encoder + 3 * decoder);
  m.norm_position = NormPosition::pre;
  EXPECT_EQ(count_parameters(m), kEmbedding + 2 * encoder + 3 * decoder + 2 * kLayerNorm);
  // Only self-attention has relative positions.
  m.attention.position = "relative";
  m.attention.of<config::PositionOptions>().position_bias = true;
  EXPECT_EQ(count_parameters(m),
            kEmbedding + 2 * encoder + 3 * decoder + 2 * kLayerNorm + 5 * (10 * 4 * 3 + 2 * 4 * 3));
  const std::int64_t shared = count_parameters(m);
  m.source_vocabulary_size = 17;
  EXPECT_EQ(count_parameters(m), shared + 17 * 10) << "an embedding of the sources' own";
}

TEST(Parameters, Classifiers) {
  ModelOptions m = small_model();
  m.kind = ModelKind::classifier;
  m.n_classes = 3;
  const std::int64_t body = kBase - kHead - kHeadBias;
  EXPECT_EQ(count_parameters(m), body + 10 * 3 + 3);
  m.d_head_hidden = 8;
  EXPECT_EQ(count_parameters(m), body + 10 * 8 + 8 + 8 * 3 + 3);
  m.paired = true;
  EXPECT_EQ(count_parameters(m), body + 40 * 8 + 8 + 8 * 3 + 3);
}

TEST(Parameters, Vision) {
  ModelOptions m = small_model();
  m.kind = ModelKind::vision;
  m.n_classes = 3;
  m.image_size = 6;
  m.patch_size = 2;
  m.image_channels = 2;
  const std::int64_t body = kBase - kEmbedding - kHead - kHeadBias;
  EXPECT_EQ(count_parameters(m), body + 2 * 2 * 2 * 10 + 10 + 10 * 3 + 3);
  m.attention.position = "learned";
  EXPECT_EQ(count_parameters(m), body + 2 * 2 * 2 * 10 + 10 + 10 * 3 + 3 + 9 * 10);
  m.patch_size = 0;
  EXPECT_THROW(count_parameters(m), UserError);
}

TEST(Parameters, CountsBeyond63BitsAreRefused) {
  ModelOptions m = small_model();
  m.d_model = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(count_parameters(m), UserError);
  EXPECT_THROW(paper_cost(m), UserError);
  EXPECT_THROW(executed_cost(m, 1), UserError);
  m = small_model();
  EXPECT_THROW(executed_cost(m, std::numeric_limits<std::int64_t>::max()), UserError);
}

}  // namespace parameters_test
}  // namespace headroom::cost
