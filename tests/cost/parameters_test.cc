// count_parameters() against sums over the tensors of small models, written out by shape.
#include <gtest/gtest.h>

#include <limits>

#include "headroom/core/error.h"
#include "headroom/cost/cost.h"

namespace headroom::cost {
namespace {

using namespace config;

// d = 10, V = 7, L = 2, H = 4, e = 3: no two factors alike.
ModelOptions small() {
  ModelOptions m;
  m.vocabulary_size = 7;
  m.n_layers = 2;
  m.d_model = 10;
  m.context_length = 5;
  m.attention.n_heads = 4;
  m.attention.d_head = 3;
  m.attention.position = Position::none;
  m.mlp.d_hidden = 11;
  return m;
}

constexpr std::int64_t kEmbedding = 7 * 10, kHead = 10 * 7, kHeadBias = 7, kLayerNorm = 10 + 10;
constexpr std::int64_t kAttention = 4 * (10 * 4 * 3);
constexpr std::int64_t kMlp = 10 * 11 + 11 + 11 * 10 + 10;
constexpr std::int64_t kBase = kEmbedding + kHead + kHeadBias + kLayerNorm + 2 * (2 * kLayerNorm + kAttention + kMlp);

TEST(Parameters, DenseModelIsTheSumOfItsTensors) {
  EXPECT_EQ(count_parameters(small()), kBase);
}

TEST(Parameters, TiedEmbeddingsShareOneTable) {
  ModelOptions m = small();
  m.tied_embeddings = true;
  EXPECT_EQ(count_parameters(m), kBase - kHead);
  m.head_bias = false;
  EXPECT_EQ(count_parameters(m), kBase - kHead - kHeadBias);
}

TEST(Parameters, RmsNormsHaveNoBias) {
  ModelOptions m = small();
  m.norm = Norm::rms;
  EXPECT_EQ(count_parameters(m), kBase - 5 * 10);
}

TEST(Parameters, PostNormAndParallelBlocksHaveTheSameNorms) {
  ModelOptions m = small();
  m.norm_position = NormPosition::post;
  EXPECT_EQ(count_parameters(m), kBase);
  m.norm_position = NormPosition::pre;
  m.arrangement = Arrangement::parallel;
  EXPECT_EQ(count_parameters(m), kBase);
}

TEST(Parameters, MlpKinds) {
  ModelOptions m = small();
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
  ModelOptions m = small();
  m.attention.bias = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (3 * 4 * 3 + 10));
  m.attention.n_kv_heads = 2;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (4 * 3 + 2 * (2 * 3) + 10 - 2 * (2 * 10 * 3)));
}

TEST(Parameters, GroupedKeysAndValues) {
  ModelOptions m = small();
  m.attention.n_kv_heads = 1;
  EXPECT_EQ(count_parameters(m), kBase - 2 * (2 * 3 * 10 * 3));
}

TEST(Parameters, PositionsScaleAndQueryKeyNorm) {
  ModelOptions m = small();
  m.attention.position = Position::learned;
  EXPECT_EQ(count_parameters(m), kBase + 5 * 10);
  m.attention.position = Position::rope;
  EXPECT_EQ(count_parameters(m), kBase);
  m.attention.position = Position::sinusoidal;
  EXPECT_EQ(count_parameters(m), kBase);
  m.attention.position = Position::relative;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3));
  m.attention.position_bias = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3));
  m.attention.scale = Scale::learned;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3 + 1));
  m.attention.qk_norm = true;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (10 * 4 * 3 + 2 * 4 * 3 + 1 + 2 * 3));
}

TEST(Parameters, ExpertsInEveryCombination) {
  for (int combination = 0; combination < 16; ++combination) {
    ModelOptions m = small();
    m.attention.projection = Projection::experts;
    m.attention.n_experts = 5;
    m.attention.experts.clear();
    const char* const names[] = {"q", "k", "v", "o"};
    std::int64_t projections = 0;
    for (int i = 0; i < 4; ++i) {
      const bool bank = (combination >> i & 1) != 0;
      projections += (bank ? 5 : 1) * 10 * 4 * 3;
      if (bank) {
        m.attention.experts.emplace_back(names[i]);
      }
    }
    const bool source = (combination & 0b0110) != 0, destination = (combination & 0b1001) != 0;
    const std::int64_t selection = 10 * 4 * 5;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source + destination) * selection - kAttention))
        << "combination " << combination;
    m.attention.shared_selection = true;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source || destination) * selection - kAttention))
        << "shared, combination " << combination;
  }
}

TEST(Parameters, RoutedHeadsShareKeysValuesAndPositions) {
  ModelOptions m = small();
  m.attention.projection = Projection::routed_heads;
  m.attention.n_experts = 6;
  m.attention.top_k = 4;
  const std::int64_t routed = 2 * (6 * 10 * 3) + 2 * (10 * 3) + 10 * 6;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (routed - kAttention));
  m.attention.position = Position::relative;
  EXPECT_EQ(count_parameters(m), kBase + 2 * (routed + 10 * 3 - kAttention));
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const MisuseError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Parameters, OptionsWithoutFormulaAreNamed) {
  ModelOptions m = small();
  m.attention.score = Score::gaussian_mixture;
  for (const auto& said : {refusal([&] { count_parameters(m); }), refusal([&] { paper_cost(m); }),
                           refusal([&] { executed_cost(m, 1); })}) {
    EXPECT_NE(said.find("model.attention.score = \"gaussian_mixture\""), std::string::npos) << said;
  }
  m = small();
  m.attention.composition = Composition::static_map;
  EXPECT_NE(refusal([&] { paper_cost(m); }).find("model.attention.composition = \"static\""), std::string::npos);
  m = small();
  m.kind = ModelKind::vision;
  EXPECT_NE(refusal([&] { count_parameters(m); }).find("model.kind = \"vision\""), std::string::npos);
}

TEST(Parameters, CountsBeyond63BitsAreRefused) {
  ModelOptions m = small();
  m.d_model = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(count_parameters(m), MisuseError);
  EXPECT_THROW(paper_cost(m), MisuseError);
  EXPECT_THROW(executed_cost(m, 1), MisuseError);
  m = small();
  EXPECT_THROW(executed_cost(m, std::numeric_limits<std::int64_t>::max()), MisuseError);
}

}  // namespace
}  // namespace headroom::cost
