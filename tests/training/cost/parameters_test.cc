// count_parameters() against sums over the tensor shapes of small models. tests/engine/models compares it with built
// models of every part and every recipe.
#include <gtest/gtest.h>

#include <limits>

#include "headroom/config/attention/routing_options.h"
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

// Expects that each case adds `count` parameters to those of small_model() with `common`.
void expect_added(const std::string& common, const std::vector<Counted>& cases) {
  for (const auto& [assignments, count] : cases) {
    EXPECT_EQ(count_parameters(with(small_model(), common + " " + assignments)) - kBase, count) << assignments;
  }
}

TEST(Parameters, BlocksAndHead) {
  expect_added("", {{"", 0},
                    {"tied_embeddings=true", -kHead},
                    {"tied_embeddings=true head_bias=false", -kHead - kHeadBias},
                    {"norm=rms", -5 * 10},
                    {"norm_position=post", 0},
                    {"arrangement=parallel", 0},
                    {"adaptive_cutoffs=[2,3,5]", 3 * (10 + 1)},
                    {"adaptive_cutoffs=[2,3,5] head_bias=false", 3 * 10 - kHeadBias}});
}

TEST(Parameters, MlpKinds) {
  expect_added("",
               {{"mlp.bias=false", -2 * (11 + 10)},
                {"mlp.bias=false mlp.kind=gated", 2 * (3 * 10 * 11 - kMlp)},
                {"mlp.kind=gated", 2 * (3 * 10 * 11 + 11 + 11 + 10 - kMlp)},
                {"mlp.kind=gated mlp.hidden_groups=11", 2 * (3 * 10 * 11 + 11 + 11 + 10 + 10 * 11 - kMlp)},
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_kind=gated mlp.d_shared=7",
                 2 * (6 * 3 * 10 * 11 + 10 * 6 + 3 * 10 * 7 - kMlp)},
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_kind=gated mlp.d_shared=7 mlp.shared_gate=true",
                 2 * (6 * 3 * 10 * 11 + 10 * 6 + 3 * 10 * 7 + 10 - kMlp)},
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_kind=clamped mlp.expert_bias=all",
                 2 * (6 * (3 * 10 * 11 + 11 + 11 + 10 + 1) + 10 * 6 - kMlp)},
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_kind=gated mlp.expert_bias=hidden",
                 2 * (6 * (3 * 10 * 11 + 11 + 11) + 10 * 6 + 10 - kMlp)},
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_bias=output", 2 * (6 * 2 * 10 * 11 + 10 * 6 + 10 - kMlp)},
                {"output_norms=true", 2 * 2 * 20},
                {"mlp.kind=experts mlp.n_experts=6", 2 * (6 * 10 * 11 + 6 * 11 * 10 + 10 * 6 - kMlp)}});
}

TEST(Parameters, ExpertsInEveryCombination) {
  for (int combination = 0; combination < 16; ++combination) {
    ModelOptions m = with(small_model(), "attention.projection=experts attention.n_experts=5");
    m.attention.of<ExpertOptions>().experts.clear();
    const char* const names[] = {"q", "k", "v", "o"};
    std::int64_t projections = 0;
    for (int i = 0; i < 4; ++i) {
      const bool bank = (combination >> i & 1) != 0;
      projections += (bank ? 5 : 1) * 10 * 4 * 3;
      if (bank) {
        m.attention.of<ExpertOptions>().experts.emplace_back(names[i]);
      }
    }
    const bool source = (combination & 0b0110) != 0, destination = (combination & 0b1001) != 0;
    const std::int64_t selection = 10 * 4 * 5;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source + destination) * selection - kAttention))
        << "combination " << combination;
    m.attention.of<ExpertOptions>().shared_selection = true;
    EXPECT_EQ(count_parameters(m), kBase + 2 * (projections + (source || destination) * selection - kAttention))
        << "shared, combination " << combination;
  }
}

TEST(Parameters, NoisyRouters) {
  const std::int64_t routed = 2 * (6 * 10 * 3) + 2 * (10 * 3) + 10 * 6 - kAttention;
  expect_added("attention.projection=routed_heads attention.n_experts=6 attention.top_k=4",
               {{"", 2 * routed}, {"attention.noisy_routing=true", 2 * (routed + 10 * 6)}});
  // Two groups: w_k, w_v [d,G,e], a router [d,4].
  const std::int64_t groups = -2 * (2 * 10 * 3) + 10 * 4;
  expect_added("attention.projection=routed_queries attention.n_kv_heads=2 attention.top_k=1",
               {{"", 2 * groups}, {"attention.noisy_routing=true", 2 * (groups + 10 * 4)}});
}

TEST(Parameters, SparseHeads) {
  const ModelOptions m = with(small_model(), "kind=masked_language_model attention.bias=true"),
                     sparse = with(m, "attention.projection=sparse_heads attention.n_heads=3 attention.dense_heads=1");
  EXPECT_EQ(count_parameters(sparse) - count_parameters(m), 2 * (10 * 3));
}

TEST(Parameters, OtherKinds) {
  const std::int64_t body = -kHead - kHeadBias, image = body - kEmbedding + 2 * 2 * 2 * 10 + 10 + 10 * 3 + 3;
  const std::string vision = "kind=vision image_size=6 patch_size=2 image_channels=2 ";
  expect_added("n_classes=3", {{"kind=masked_language_model", 2 * kLayerNorm + 10 * 10 + 10},
                               {"kind=classifier", body + 10 * 3 + 3},
                               {"kind=classifier d_head_hidden=8", body + 10 * 8 + 8 + 8 * 3 + 3},
                               {"kind=classifier d_head_hidden=8 paired=true", body + 40 * 8 + 8 + 8 * 3 + 3},
                               {vision, image},
                               {vision + "attention.position=learned", image + 9 * 10}});
  ModelOptions m = with(small_model(), vision);
  m.patch_size = 0;
  EXPECT_THROW(count_parameters(m), UserError);
}

TEST(Parameters, CountsBeyond63BitsAreRefused) {
  ModelOptions m = small_model();
  m.d_model = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(count_parameters(m), UserError);
  EXPECT_THROW(paper_cost(m), UserError);
  EXPECT_THROW(executed_cost(m, 1), UserError);
  EXPECT_THROW(executed_cost(small_model(), std::numeric_limits<std::int64_t>::max()), UserError);
}

}  // namespace parameters_test
}  // namespace headroom::cost
