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

// Each case adds `count` parameters to those of small_model() with `common`.
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
                    {"adaptive_cutoffs=[2,3,5]", 3 * (10 + 1)}});
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
                {"mlp.kind=experts mlp.n_experts=6 mlp.expert_bias=output", 2 * (6 * 2 * 10 * 11 + 10 * 6 + 10 - kMlp)},
                {"output_norms=true", 2 * 2 * 20},
                {"mlp.kind=experts mlp.n_experts=6", 2 * (6 * 10 * 11 + 6 * 11 * 10 + 10 * 6 - kMlp)}});
}

TEST(Parameters, BiasesGroupsPositionsScaleAndNorms) {
  const std::int64_t relative = 10 * 4 * 3, biases = 2 * 4 * 3;
  expect_added("", {{"attention.bias=true", 2 * (3 * 4 * 3 + 10)},
                    {"attention.bias=true attention.n_kv_heads=2", 2 * (4 * 3 + 2 * (2 * 3) + 10 - 2 * (2 * 10 * 3))},
                    {"attention.n_kv_heads=1", -2 * (2 * 3 * 10 * 3)},
                    {"attention.position=learned", 5 * 10},
                    {"attention.position=rope", 0},
                    {"attention.position=sinusoidal", 0},
                    {"attention.position=relative", 2 * relative},
                    {"attention.position=relative attention.position_bias=true", 2 * (relative + biases)},
                    {"attention.scale=learned", 2 * 1},
                    {"attention.qk_norm=true", 2 * (2 * 3)}});
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

TEST(Parameters, RoutedAndGatedHeads) {
  const std::int64_t routed = 2 * (6 * 10 * 3) + 2 * (10 * 3) + 10 * 6 - kAttention, relative = routed + 10 * 3;
  expect_added(
      "attention.projection=routed_heads attention.n_experts=6 "
      "attention.top_k=4",
      {{"", 2 * routed},
       {"attention.position=relative", 2 * relative},
       // b_q [E,e], b_k, b_v [e], b_o [E,d]
       {"attention.position=relative attention.bias=true", 2 * (relative + 6 * 3 + 3 + 3 + 6 * 10)},
       // u, v [1,e]
       {"attention.position=relative attention.position_bias=true", 2 * (relative + 2 * 3)},
       {"attention.position=relative attention.noisy_routing=true", 2 * (relative + 10 * 6)}});
  expect_added("attention.projection=gated_heads attention.top_k=2", {{"", 2 * (10 * 4)}});
  // Two groups: w_k, w_v [d,G,e], biases likewise, w_pos [d,G,e], a router [d,4].
  const std::int64_t groups = -2 * (2 * 10 * 3) + 10 * 4;
  expect_added("attention.projection=routed_queries attention.n_kv_heads=2 attention.top_k=1",
               {{"", 2 * groups},
                {"attention.noisy_routing=true", 2 * (groups + 10 * 4)},
                {"attention.position=relative attention.bias=true",
                 2 * (groups + 10 * 2 * 3 + 4 * 3 + 2 * 3 + 2 * 3 + 4 * 10)}});
  expect_added("attention.projection=shared_and_routed attention.top_k=1",
               {{"", 2 * (10 * (2 + 2 + 2))},
                {"attention.shared_heads=1", 2 * (10 * (3 + 2))},
                {"attention.shared_heads=0", 2 * (10 * 4)}});
}

TEST(Parameters, FactoredTiedAndLatentHeads) {
  const std::int64_t output = 10 * 4 * 3, query = 10 * 4 * 3;
  expect_added("attention.projection=factored attention.kv_rank=2",
               {{"", 2 * (query + 2 * 2 * 10 * (4 + 3) + output - kAttention)},
                {"attention.q_rank=6", 2 * ((6 + 2 * 2) * 10 * (4 + 3) + output - kAttention)}});
  const std::int64_t wide = 10 * 4 * 4 * 4, tied = 10 * (2 * 4 * 4 + 2 * 4 + 2);  // e = 4
  expect_added(
      "attention.d_head=4 attention.n_kv_heads=2 attention.projection=tied",
      {{"", 2 * (tied - kAttention)}, {"attention.bias=true", 2 * (tied + 4 * 4 + 2 + 2 * 4 + 10 - kAttention)}});
  const std::int64_t down = 10 * (6 + 2) + 6;  // e = 4, p = 2, n = 2, w = 4
  expect_added("attention.d_head=4 attention.projection=latent attention.kv_rank=6",
               {{"", 2 * (wide / 2 + down + 6 * 4 * (2 + 4) - kAttention)},
                {"attention.latent_groups=2", 2 * (wide / 2 + down + 3 * 4 * (2 + 4) - kAttention)}});
}

TEST(Parameters, OutputAndForgetGates) {
  expect_added("attention.gate_output=head",
               {{"", 2 * (10 * 4)}, {"attention.gate_channels=3 attention.exclusive=true", 2 * (3 * 4)}});
  expect_added("attention.gate_output=element", {{"", 2 * (10 * 12)}, {"attention.gate_channels=10", 2 * (10 * 12)}});
  expect_added("attention.position=forgetting",
               {{"", 2 * (10 * 4 + 4)}, {"attention.forget=head", 2 * 4}, {"attention.n_kv_heads=2", 2 * (44 - 120)}});
  expect_added("attention.position=alibi", {{"", 0}});
}

TEST(Parameters, SparseHeads) {
  const ModelOptions m = with(small_model(), "kind=masked_language_model attention.bias=true"),
                     sparse = with(m, "attention.projection=sparse_heads attention.n_heads=3 attention.dense_heads=1");
  EXPECT_EQ(count_parameters(sparse) - count_parameters(m), 2 * (10 * 3));
}

TEST(Parameters, MixtureKeys) {
  const std::int64_t grouped = -2 * (2 * 2 * 10 * 3), more_keys = 2 * (10 * 2 * 3);  // two projections [d,G,e] more
  const std::int64_t biases = 4 * 3 + 2 * 3 + 10;
  const std::string position = "attention.prior=head_position attention.keys=shifted memory_length=5 ";
  expect_added(
      "attention.score=gaussian_mixture attention.n_mixtures=3 attention.n_kv_heads=2",
      {{"attention.prior=none", grouped + 2 * more_keys},
       {"attention.prior=layer", grouped + 2 * (more_keys + 3)},
       {"attention.prior=head", grouped + 2 * (more_keys + 3 * 2)},
       {"attention.prior=head_position", grouped + 2 * (more_keys + 3 * 2 * 5)},
       {"attention.prior=head attention.keys=shifted", grouped + 2 * (3 * 2 * 3 + 3 * 2)},
       {"attention.prior=head attention.keys=single", grouped},
       {position, grouped + 2 * (3 * 2 * 3 + 3 * 2 * 10)},
       {position + "attention.prior_update=soft_e", grouped + 2 * (3 * 2 * 3)},  // a state, not a parameter
       {"attention.mixing=max attention.keys=shifted", grouped + 2 * (3 * 2 * 3)},
       {"attention.mixing=max attention.keys=shifted attention.bias=true", grouped + 2 * (3 * 2 * 3 + biases + 2 * 3)},
       {"attention.mixing=max attention.bias=true",  // b_k [R,G,e]
        grouped + 2 * (more_keys + biases + 3 * 2 * 3)}});
  expect_added("attention.score=linear", {{"", 2 * (10 * 4 * 3 + 2 * 4)}, {"attention.keys=single", 0}});
}

TEST(Parameters, MixtureKeysOfExpertsAndRoutedHeads) {
  const std::int64_t routed = 2 * (5 * 10 * 3) + (2 + 1) * (10 * 3) + 10 * 5;
  expect_added(
      "attention.score=gaussian_mixture attention.prior=none "
      "attention.n_experts=5 attention.experts=[\"k\"]",
      {// w_k [R,H,E,d,e], one selection
       {"attention.projection=experts", 2 * ((2 * 5 - 1) * 10 * 4 * 3 + 10 * 4 * 5)},
       {"attention.projection=experts attention.keys=shifted", 2 * ((5 - 1) * 10 * 4 * 3 + 2 * 4 * 3 + 10 * 4 * 5)},
       {"attention.projection=routed_heads attention.bias=true",
        2 * (routed + 5 * 3 + 2 * 3 + 3 + 5 * 10 - kAttention)}});
}

TEST(Parameters, Composition) {
  const std::int64_t hidden = 2 * 3 * 2, gate = 10 * 4, fixed = 2 * 2 * 2;
  const std::int64_t low_rank = 2 * 10 * hidden + 2 * hidden * 2 * 3 * 2;  // w1 [2,d,I], w2 [2,I,2,3,2]
  const std::string dynamic = "attention.composition=dynamic attention.compose_rank=3 ",
                    post = dynamic + "attention.compose=[\"post\"] ", keys = "attention.compose_gates=[\"key\"] ";
  expect_added("attention.compose_groups=2",  // two heads each
               {{"attention.composition=static", 2 * 2 * fixed},
                {dynamic, 2 * 2 * 2 * (low_rank + gate)},
                {post, 2 * 2 * (low_rank + gate)},
                {post + keys, 2 * (2 * low_rank + gate)},
                {post + keys + "attention.compose_low_rank=[]", 2 * gate},
                {post + keys +
                     "attention.compose_low_rank=[] "
                     "attention.compose_static=true",
                 2 * (gate + fixed)}});
}

TEST(Parameters, CompositionAsThePaperCountsIt) {
  for (const std::int64_t rank : {1, 2, 4}) {
    for (const std::int64_t groups : {1, 2, 4}) {
      ModelOptions m = with(small_model(), "attention.composition=dynamic");
      m.attention.of<CompositionOptions>().compose_rank = rank;
      m.attention.of<CompositionOptions>().compose_groups = groups;
      const std::int64_t h = 4, d = 10;
      EXPECT_EQ(count_parameters(m) - kBase, 2 * (8 * d * h * rank + 16 * h * h * rank * rank / groups + 4 * d * h));
    }
  }
}

TEST(Parameters, EncoderDecoder) {
  const std::int64_t encoder = kAttention + kMlp + 2 * kLayerNorm, decoder = 2 * kAttention + kMlp + 3 * kLayerNorm;
  const std::int64_t post = kEmbedding + 2 * encoder + 3 * decoder - kBase, pre = post + 2 * kLayerNorm;
  // Only self-attention has relative positions.
  const std::string relative = "n_decoder_layers=3 attention.position=relative attention.position_bias=true ";
  const std::int64_t positions = 5 * (10 * 4 * 3 + 2 * 4 * 3);
  expect_added("kind=encoder_decoder tied_embeddings=true head_bias=false",
               {{"norm_position=post", post - decoder},
                {"norm_position=post n_decoder_layers=3", post},
                {"n_decoder_layers=3", pre},
                {relative, pre + positions},
                {relative + "source_vocabulary_size=17", pre + positions + 17 * 10}});
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
