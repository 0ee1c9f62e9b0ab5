// Compares executed_cost() with the matmuls of small models, each written [rows x inner x columns]. tests/engine/models
// compares the count with the matmuls that forward passes of every part execute.
#include <gtest/gtest.h>

#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost::executed_test {

using namespace config;

// M = 3 (S = 8).
ModelOptions small() {
  return with(small_model(), "memory_length=3");
}

constexpr std::int64_t kQuery = 5 * 10 * 12, kOutput = 5 * 12 * 10;  // T rows
constexpr std::int64_t kKeys = 8 * 10 * 12, kValues = 8 * 10 * 12;   // S rows
constexpr std::int64_t kScores = 4 * (5 * 3 * 8), kRead = 4 * (5 * 8 * 3);
constexpr std::int64_t kDense = kQuery + kKeys + kValues + kOutput + kScores + kRead;
constexpr std::int64_t kMlp = 5 * 10 * 11 + 5 * 11 * 10;
constexpr std::int64_t kHead = 5 * 10 * 7;

// Expects that in each case an attention layer of small() with `common` has `count` more MACs than kDense.
void expect_added(const std::string& common, const std::vector<Counted>& cases) {
  for (const auto& [assignments, count] : cases) {
    const ModelOptions model = with(small(), common + " " + assignments);
    EXPECT_EQ(executed_cost(model, 1).attention_macs, 2 * (kDense + count)) << assignments;
  }
}

TEST(Executed, DenseModel) {
  const ExecutedCost cost = executed_cost(small(), 6);
  EXPECT_EQ(cost.attention_macs, 2 * kDense);
  EXPECT_EQ(cost.mlp_macs, 2 * kMlp);
  EXPECT_EQ(cost.head_macs, kHead);
  EXPECT_EQ(cost.step_macs, 3 * 6 * (2 * kDense + 2 * kMlp + kHead));
}

// 5 queries see 4 to 8 of the 8 keys: 30 pairs of 40 are visible; with a window of 6, 4 + 5 + 6 + 6 + 6 = 27.
TEST(Executed, VisiblePairs) {
  const auto hidden = [](const std::string& assignments, std::int64_t batch = 1) {
    const ExecutedCost cost = executed_cost(with(small(), assignments), batch);
    return cost.step_macs - cost.visible_macs;
  };
  constexpr std::int64_t kPair = 3 * 2 * (4 * 3 * 2);  // per step: 2 layers, 4 heads, scores and values of width 3
  EXPECT_EQ(hidden(""), 10 * kPair);
  EXPECT_EQ(hidden("", 6), 6 * 10 * kPair);
  EXPECT_EQ(hidden("attention.window=6"), 13 * kPair);
  EXPECT_EQ(hidden("attention.window=6 attention.window_pattern=1:1"), (13 + 10) * kPair / 2);
  EXPECT_EQ(hidden("attention.window=2"), (40 - 10) * kPair);
  EXPECT_EQ(hidden("attention.position=relative"), 10 * kPair * 3 / 2);
  EXPECT_EQ(hidden("attention.composition=static"), 10 * (kPair + 3 * 2 * (2 * 4 * 4)));
  EXPECT_EQ(hidden("attention.score=linear attention.position=none"), 0);
  const auto bidirectional = executed_cost(with(small_model(), "kind=masked_language_model"), 1);
  EXPECT_EQ(bidirectional.visible_macs, bidirectional.step_macs);
}

TEST(Executed, PositionsAreProjectedOnceForABatch) {
  const std::int64_t projection = 8 * 10 * 12;
  const ExecutedCost cost = executed_cost(with(small(), "attention.position=relative"), 6);
  EXPECT_EQ(cost.attention_macs, 2 * (kDense + kScores + projection));
  EXPECT_EQ(cost.step_macs, 3 * (6 * (2 * (kDense + kScores) + 2 * kMlp + kHead) + 2 * projection));
}

TEST(Executed, ExpertsMultiplyTheirProjectionsAndAddARouterPerSide) {
  const std::int64_t source = 8 * 10 * (4 * 6), destination = 5 * 10 * (4 * 6);
  const std::string shared = "attention.shared_selection=true ";
  expect_added("attention.projection=experts attention.n_experts=6 attention.top_k=2",
               {{"attention.experts=[\"v\",\"o\"]", kValues + kOutput + source + destination},
                {shared + "attention.experts=[\"v\",\"o\"]", kValues + kOutput + source},
                {shared + "attention.experts=[\"q\",\"o\"]", kQuery + kOutput + destination},
                {"attention.experts=[\"q\",\"k\",\"v\",\"o\"] attention.top_k=3",
                 2 * (kQuery + kKeys + kValues + kOutput) + source + destination},
                {"attention.experts=[]", 0}});
}

TEST(Executed, OnlyTrainingIsNoisy) {
  const std::string moa = "attention.projection=routed_heads attention.n_experts=6 attention.top_k=4";
  const ExecutedCost plain = executed_cost(with(small(), moa), 3),
                     noisy = executed_cost(with(small(), moa + " attention.noisy_routing=true"), 3);
  EXPECT_EQ(noisy.attention_macs, plain.attention_macs);
  EXPECT_EQ(noisy.step_macs, plain.step_macs + 3 * 3 * 2 * (5 * 10 * 6));
}

TEST(Executed, Composition) {
  const std::int64_t hidden = 2 * 3 * 2, fixed = 2 * (5 * 8 * 2 * 2);                   // [T,S,m] x [m,m] in 2 groups
  const std::int64_t low_rank = 2 * (10 * hidden + hidden * 2 * 3 * 2), gate = 10 * 4;  // per token
  const std::int64_t mixing = 2 * (5 * 8 * 4 * 3);
  const std::string dynamic = "attention.composition=dynamic attention.compose_rank=3 ",
                    query = dynamic + "attention.compose=[\"pre\"] attention.compose_low_rank=[\"query\"] ",
                    ungated = query + "attention.compose_gates=[] ";
  expect_added("attention.compose_groups=2",
               {{"attention.composition=static", 2 * fixed},
                {dynamic, 2 * (2 * mixing + (5 + 8) * (low_rank + gate))},
                {query, mixing + 5 * (low_rank + gate) + 8 * gate},
                {ungated, mixing + 5 * low_rank},
                {ungated + "attention.compose_static=true", mixing + 5 * low_rank + fixed}});
}

TEST(Executed, LayersWithoutAPart) {
  const auto cost = [](const std::string& assignments) { return executed_cost(with(small(), assignments), 1); };
  EXPECT_EQ(cost("attention.n_heads=0").attention_macs, 0);
  EXPECT_EQ(cost("attention.n_heads=0").mlp_macs, 2 * kMlp);
  EXPECT_EQ(cost("layers=[{},{attention={n_heads=0}}]").attention_macs, kDense);
  EXPECT_EQ(cost("layers=[{},{mlp={kind=\"none\"}}]").mlp_macs, kMlp);
  EXPECT_EQ(cost("layers=[{},{mlp={kind=\"none\"}}]").attention_macs, 2 * kDense);
  EXPECT_EQ(cost("layers=[{},{attention={share_kv=1}}]").attention_macs, 2 * kDense - kKeys - kValues);
  const ModelOptions plain = small_model(), shared = with(plain, "layers=[{},{attention={share_kv=1}}]");
  EXPECT_EQ(2 * (paper_cost(plain).attention_macs - paper_cost(shared).attention_macs), 2 * 5 * 10 * 12);
  EXPECT_EQ(paper_cost(with(plain, "attention.n_heads=0")).attention_macs, 0);
  constexpr std::int64_t kNorm = 2 * 10, kAttention = 4 * (10 * 4 * 3), kMatrices = 2 * 10 * 11 + 11 + 10;
  const std::pair<const char*, std::int64_t> fewer[] = {{"attention.n_heads=0", 2 * (kAttention + kNorm)},
                                                        {"layers=[{},{attention={n_heads=0}}]", kAttention + kNorm},
                                                        {"layers=[{mlp={kind=\"none\"}},{}]", kMatrices + kNorm},
                                                        {"layers=[{},{attention={share_kv=1}}]", kAttention / 2}};
  for (const auto& [assignments, count] : fewer) {
    EXPECT_EQ(count_parameters(plain) - count_parameters(with(plain, assignments)), count) << assignments;
  }
}

TEST(Executed, OtherKinds) {
  constexpr std::int64_t kLayer = 4 * 5 * 10 * 12 + 2 * 4 * (5 * 3 * 5);
  const auto cost = [](const std::string& assignments, std::int64_t batch = 1) {
    return executed_cost(with(small_model(), assignments), batch);
  };
  EXPECT_EQ(cost("adaptive_cutoffs=[2,5]").head_macs, 5 * 10 * (7 + 2));
  EXPECT_EQ(cost("kind=masked_language_model").attention_macs, 2 * kLayer);
  EXPECT_EQ(cost("kind=masked_language_model").head_macs, 5 * 10 * 10 + kHead);
  EXPECT_EQ(cost("kind=masked_language_model", 4).step_macs,
            3 * 4 * (2 * (kLayer + kMlp) + (5 * 10 * 10 + kHead) * 15 / 100));
  const ExecutedCost translator = cost("kind=encoder_decoder n_decoder_layers=3");
  EXPECT_EQ(translator.attention_macs, (2 + 2 * 3) * kLayer);
  EXPECT_EQ(translator.mlp_macs, 5 * kMlp);
  EXPECT_EQ(translator.head_macs, kHead);
  EXPECT_EQ(cost("kind=classifier n_classes=3").head_macs, 10 * 3);
  const ExecutedCost pairs = cost("kind=classifier n_classes=3 d_head_hidden=8 paired=true");
  EXPECT_EQ(pairs.head_macs, 40 * 8 + 8 * 3);
  EXPECT_EQ(pairs.attention_macs, 2 * 2 * kLayer);
  const ExecutedCost image = cost("kind=vision n_classes=3 d_head_hidden=8 image_size=9 patch_size=3");
  EXPECT_EQ(image.head_macs, 9 * 27 * 10 + 10 * 8 + 8 * 3);
  EXPECT_EQ(image.mlp_macs, 2 * 2 * 9 * 10 * 11);
  EXPECT_EQ(cost("mlp.kind=gated").mlp_macs, 2 * (3 * 5 * 10 * 11));
  EXPECT_EQ(cost("mlp.kind=gated mlp.hidden_groups=11").mlp_macs, 2 * (3 * 5 * 10 * 11 + 5 * 10 * 11));
  EXPECT_EQ(cost("mlp.kind=experts mlp.n_experts=9 mlp.top_k=3 mlp.expert_kind=gated mlp.d_shared=7").mlp_macs,
            2 * 5 * (10 * 9 + 3 * 3 * 10 * 11 + 3 * 10 * 7));
  EXPECT_EQ(cost("mlp.kind=experts mlp.n_experts=9 mlp.top_k=3 mlp.d_shared=7 mlp.shared_gate=true").mlp_macs,
            2 * 5 * (10 * 9 + 3 * 2 * 10 * 11 + 3 * 10 * 7 + 10));
  EXPECT_EQ(cost("mlp.kind=experts mlp.n_experts=9 mlp.top_k=3").mlp_macs, 2 * (5 * 10 * 9 + 3 * kMlp));
  EXPECT_THROW(cost("", 0), UserError);
}

// Without memory, the two accountings differ only in the routing (H) and in the weighted averages.
TEST(Executed, AgreesWithThePapersWhereTheyCountTheSame) {
  EXPECT_EQ(executed_cost(small_model(), 1).attention_macs, 2 * paper_cost(small_model()).attention_macs);
}

TEST(TrainingFlops, AreTwoForEachMacOfEveryStep) {
  config::Config config = recipe("zoo/dense");
  const double step = 2.0 * static_cast<double>(executed_cost(config.model, config.train.batch_size).step_macs);
  EXPECT_EQ(step_flops(config).value(), step);
  config.train.steps = 7;
  EXPECT_EQ(training_flops(config).value(), 7.0 * step);
  EXPECT_FALSE(training_flops(recipe("small/translation_dense_h4"))) << "sentences differ in length";
}

TEST(Counts, Beyond63BitsAreRefused) {
  ModelOptions m = small_model();
  m.d_model = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(count_parameters(m), UserError);
  EXPECT_THROW(paper_cost(m), UserError);
  EXPECT_THROW(executed_cost(m, 1), UserError);
  EXPECT_THROW(executed_cost(small_model(), std::numeric_limits<std::int64_t>::max()), UserError);
}

}  // namespace headroom::cost::executed_test
