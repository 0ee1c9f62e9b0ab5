// executed_cost() against the products of small models, each written [rows x inner x columns].
#include <gtest/gtest.h>

#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/core/error.h"
#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace executed_test {

using namespace config;

// M = 3 (S = 8).
ModelOptions small() {
  ModelOptions m = small_model();
  m.memory_length = 3;
  return m;
}

constexpr std::int64_t kQuery = 5 * 10 * 12, kOutput = 5 * 12 * 10;  // T rows
constexpr std::int64_t kKeys = 8 * 10 * 12, kValues = 8 * 10 * 12;   // S rows
constexpr std::int64_t kScores = 4 * (5 * 3 * 8), kRead = 4 * (5 * 8 * 3);
constexpr std::int64_t kDense = kQuery + kKeys + kValues + kOutput + kScores + kRead;
constexpr std::int64_t kMlp = 5 * 10 * 11 + 5 * 11 * 10;
constexpr std::int64_t kHead = 5 * 10 * 7;

TEST(Executed, DenseModel) {
  const ExecutedCost cost = executed_cost(small(), 6);
  EXPECT_EQ(cost.attention_macs, 2 * kDense);
  EXPECT_EQ(cost.mlp_macs, 2 * kMlp);
  EXPECT_EQ(cost.head_macs, kHead);
  EXPECT_EQ(cost.step_macs, 3 * 6 * (2 * kDense + 2 * kMlp + kHead));
}

TEST(Executed, PositionsAreProjectedOnceForABatch) {
  ModelOptions m = small();
  m.attention.position = "relative";
  const std::int64_t scores = 4 * (5 * 3 * 8), projection = 8 * 10 * 12;
  const ExecutedCost cost = executed_cost(m, 6);
  EXPECT_EQ(cost.attention_macs, 2 * (kDense + scores + projection));
  EXPECT_EQ(cost.step_macs, 3 * (6 * (2 * (kDense + scores) + 2 * kMlp + kHead) + 2 * projection));
}

TEST(Executed, LaterKeysHavePositionsToo) {
  ModelOptions m = small();
  m.memory_length = 0;
  m.kind = ModelKind::masked_language_model;
  const std::int64_t before = executed_cost(m, 1).attention_macs;
  m.attention.position = "relative";  // offsets -4 to 4
  EXPECT_EQ(executed_cost(m, 1).attention_macs, before + 2 * (4 * (5 * 3 * 9) + 9 * 10 * 12));
  m.kind = ModelKind::classifier;
  m.n_classes = 2;
  m.paired = true;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (before + 2 * (4 * (5 * 3 * 9) + 9 * 10 * 12)));
}

TEST(Executed, GroupedKeysAndValuesAreProjectedOncePerGroup) {
  ModelOptions m = small();
  m.attention.n_kv_heads = 2;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense - kKeys / 2 - kValues / 2));
}

TEST(Executed, ExpertsMultiplyTheirProjectionsAndAddASelectionASide) {
  ModelOptions m = small();
  m.attention.projection = "experts";
  m.attention.of<config::ExpertOptions>().experts = {"v", "o"};
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 2;
  const std::int64_t source = 8 * 10 * (4 * 6), destination = 5 * 10 * (4 * 6);
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + kValues + kOutput + source + destination));
  m.attention.of<config::ExpertOptions>().shared_selection = true;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + kValues + kOutput + source));
  m.attention.of<config::ExpertOptions>().experts = {"q", "o"};
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + kQuery + kOutput + destination));
  m.attention.of<config::ExpertOptions>().experts = {"q", "k", "v", "o"};
  m.attention.of<config::ExpertOptions>().shared_selection = false;
  m.attention.of<config::RoutingOptions>().top_k = 3;
  EXPECT_EQ(executed_cost(m, 1).attention_macs,
            2 * (3 * (kQuery + kKeys + kValues + kOutput) + kScores + kRead + source + destination));
  m.attention.of<config::ExpertOptions>().experts = {};
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * kDense);
}

TEST(Executed, RoutedHeads) {
  ModelOptions m = small();
  m.attention.projection = "routed_heads";
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 4;
  const std::int64_t shared = 8 * 10 * 3, router = 5 * 10 * 6;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kQuery + 2 * shared + kOutput + kScores + kRead + router));
  m.attention.position = "relative";
  EXPECT_EQ(executed_cost(m, 1).attention_macs,
            2 * (kQuery + 2 * shared + kOutput + 2 * kScores + kRead + router + 8 * 10 * 3));
}

TEST(Executed, RoutedHeadsAreNoisyOnlyWhileTraining) {
  ModelOptions m = small();
  m.attention.projection = "routed_heads";
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 4;
  const ExecutedCost before = executed_cost(m, 3);
  m.attention.of<config::RoutedHeadOptions>().noisy_routing = true;
  const ExecutedCost noisy = executed_cost(m, 3);
  EXPECT_EQ(noisy.attention_macs, before.attention_macs);
  EXPECT_EQ(noisy.step_macs, before.step_macs + 3 * 3 * 2 * (5 * 10 * 6));
}

TEST(Executed, GatedHeadsComputeEveryHead) {
  ModelOptions m = small();
  m.attention.projection = "gated_heads";
  m.attention.of<config::RoutingOptions>().top_k = 2;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + 5 * 10 * 4));
}

TEST(Executed, EveryMixtureKeyIsScored) {
  ModelOptions m = small();
  m.attention.score = "gaussian_mixture";
  m.attention.of<config::MixtureOptions>().n_mixtures = 3;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + 2 * kKeys + 2 * kScores));
  m.attention.of<config::MixtureOptions>().keys = Keys::shifted;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + 2 * kScores));
  m.attention.position = "relative";  // one product for all components
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + 3 * kScores + 8 * 10 * 12));
  m.attention.of<config::MixtureOptions>().keys = Keys::single;
  m.attention.position = "none";
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * kDense);
  m.attention.of<config::MixtureOptions>().keys = Keys::own;
  m.attention.projection = "experts";
  m.attention.of<config::ExpertOptions>().experts = {"k"};
  m.attention.of<config::RoutingOptions>().n_experts = 6;
  m.attention.of<config::RoutingOptions>().top_k = 2;  // two experts for each of three keys
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * (kDense + 5 * kKeys + 2 * kScores + 8 * 10 * 24));
}

TEST(Executed, LinearAttentionTakesChunksOf64) {
  ModelOptions m = small();
  m.context_length = 64 + 64 + 7;
  m.memory_length = 0;
  m.n_layers = 1;
  const std::int64_t t = 135, projections = 4 * (t * 10 * 12);
  m.attention.score = "linear";
  m.attention.of<config::MixtureOptions>().keys = Keys::single;
  // The first chunk reads no state, and the last one writes none.
  const std::int64_t inside = 2 * 3 * (64 * 64 + 64 * 64 + 7 * 7), state = (71 + 128) * 3 * 3;
  const std::int64_t remembering = (t + t + 128) * 3 * 3;  // every query reads the state; the memory is added to it
  EXPECT_EQ(executed_cost(m, 1).attention_macs, projections + 4 * (inside + state));
  m.memory_length = t;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, projections + 2 * t * 10 * 12 + 4 * (inside + remembering));
  m.attention.of<config::MixtureOptions>().keys = Keys::own;  // summed before the products
  EXPECT_EQ(executed_cost(m, 1).attention_macs, projections + (2 + 2) * t * 10 * 12 + 4 * (inside + remembering));
  m.memory_length = 0;
  m.attention.of<config::MixtureOptions>().keys = Keys::single;
  m.kind = ModelKind::masked_language_model;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, projections + 4 * 2 * t * 3 * 3);
}

TEST(Executed, Composition) {
  ModelOptions m = small();
  AttentionOptions& a = m.attention;
  a.of<config::CompositionOptions>().compose_groups = 2;
  const auto extra = [&m] { return executed_cost(m, 1).attention_macs / 2 - kDense; };
  a.composition = "static";  // [T,S,m] x [m,m] in 2 groups, twice
  EXPECT_EQ(extra(), 2 * 2 * (5 * 8 * 2 * 2));
  a.composition = "dynamic";
  a.of<config::CompositionOptions>().compose_rank = 3;
  const std::int64_t hidden = 2 * 3 * 2;
  const std::int64_t low_rank = 2 * (10 * hidden + hidden * 2 * 3 * 2), gate = 10 * 4;  // of a token
  const std::int64_t mixing = 2 * (5 * 8 * 4 * 3);
  EXPECT_EQ(extra(), 2 * (2 * mixing + (5 + 8) * (low_rank + gate)));
  a.of<config::CompositionOptions>().compose = {"pre"};
  a.of<config::CompositionOptions>().compose_low_rank = {"query"};
  EXPECT_EQ(extra(), mixing + 5 * (low_rank + gate) + 8 * gate);
  a.of<config::CompositionOptions>().compose_gates = {};
  EXPECT_EQ(extra(), mixing + 5 * low_rank);
  a.of<config::CompositionOptions>().compose_static = true;
  EXPECT_EQ(extra(), mixing + 5 * low_rank + 2 * (5 * 8 * 2 * 2));
}

TEST(Executed, ClassesOfAnAdaptiveSoftmax) {
  ModelOptions m = small();
  m.adaptive_cutoffs = {2, 5};
  EXPECT_EQ(executed_cost(m, 1).head_macs, 5 * 10 * (7 + 2));
}

TEST(Executed, OtherKinds) {
  ModelOptions m = small();
  m.memory_length = 0;
  constexpr std::int64_t kLayer = 4 * 5 * 10 * 12 + 2 * 4 * (5 * 3 * 5);
  m.kind = ModelKind::masked_language_model;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * kLayer);
  EXPECT_EQ(executed_cost(m, 1).head_macs, 5 * 10 * 10 + kHead);
  EXPECT_EQ(executed_cost(m, 4).step_macs, 3 * 4 * (2 * (kLayer + kMlp) + (5 * 10 * 10 + kHead) * 15 / 100));
  m.kind = ModelKind::encoder_decoder;
  m.n_decoder_layers = 3;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, (2 + 2 * 3) * kLayer);
  EXPECT_EQ(executed_cost(m, 1).mlp_macs, 5 * kMlp);
  EXPECT_EQ(executed_cost(m, 1).head_macs, kHead);
  m.kind = ModelKind::classifier;
  m.n_classes = 3;
  EXPECT_EQ(executed_cost(m, 1).head_macs, 10 * 3);
  m.d_head_hidden = 8;
  m.paired = true;
  EXPECT_EQ(executed_cost(m, 1).head_macs, 40 * 8 + 8 * 3);
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * 2 * kLayer);
  m.paired = false;
  m.kind = ModelKind::vision;
  m.image_size = 9;
  m.patch_size = 3;
  EXPECT_EQ(executed_cost(m, 1).head_macs, 9 * 27 * 10 + 10 * 8 + 8 * 3);
  EXPECT_EQ(executed_cost(m, 1).mlp_macs, 2 * 2 * 9 * 10 * 11);
}

TEST(Executed, MlpKinds) {
  ModelOptions m = small();
  m.mlp.kind = MlpKind::gated;
  EXPECT_EQ(executed_cost(m, 1).mlp_macs, 2 * (3 * 5 * 10 * 11));
  m.mlp.kind = MlpKind::experts;
  m.mlp.n_experts = 9;
  m.mlp.top_k = 3;
  EXPECT_EQ(executed_cost(m, 1).mlp_macs, 2 * (5 * 10 * 9 + 3 * (5 * 10 * 11 + 5 * 11 * 10)));
}

TEST(Executed, RefusesAnEmptyBatch) {
  EXPECT_THROW(executed_cost(small(), 0), UserError);
}

// Without memory the two accountings differ only in selection (H) and in the weighted averages.
TEST(Executed, AgreesWithThePapersWhereTheyCountTheSame) {
  ModelOptions m = small();
  m.memory_length = 0;
  EXPECT_EQ(executed_cost(m, 1).attention_macs, 2 * paper_cost(m).attention_macs);
}

TEST(TrainingFlops, AreTwoForEachMacOfEveryStep) {
  config::Config config = config::load_config("zoo/dense");
  const double step = 2.0 * static_cast<double>(executed_cost(config.model, config.train.batch_size).step_macs);
  EXPECT_EQ(step_flops(config).value(), step);
  config.train.steps = 7;
  EXPECT_EQ(training_flops(config).value(), 7.0 * step);
  EXPECT_FALSE(training_flops(config::load_config("small/translation_dense_h4"))) << "sentences differ in length";
}

}  // namespace executed_test
}  // namespace headroom::cost
