#include "tools/compare/figures/result.h"

#include <cstdlib>

#include "example.h"
#include "tools/compare/run/checks.h"
#include "training/cost/cost.h"

namespace headroom::compare::words_test {

using testing::example_run;
using testing::example_seeds;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kConditions = "learning rate 0.001 (not tuned) and 0.076 tokens per parameter";

TEST(Conclusion, RestsOnTheLearningRateTheTokensTheEpochsAndTheSeeds) {
  ComparedRun a = example_seeds("a", {7.0, 7.1, 7.2}), b = example_seeds("b", {8.0, 8.1, 8.2});
  a.config.train.steps = a.trained[0].result.steps = 1000;
  a.config.train.batch_size = 10;
  a.config.model.context_length = 300;
  a.trained[0].result.parameters = 1000000;
  b.trained[0].log.training = {{.step = 1000, .tokens = 25'000'000}};
  b.trained[0].result.parameters = 2000000;
  b.trained[0].result.epochs = 2.5;
  b.config.train.learning_rate = 0.003;
  for (ComparedRun* run : {&a, &b}) {
    run->values = {{"train.learning_rate", "0.003"}};
    run->tuning = {{run->values, 7.0, true}};
  }
  EXPECT_EQ(basis_of({a, b}),
            "Measured with learning rate 0.001 to 0.003 (tuned), 3 to 12.5 tokens per parameter and 0 to 2.50 epochs, "
            "3 seeds each: figures are means, brackets 95% intervals.");
}

// The speed is 100 tokens per second in the first tenth after the first line, and 60 afterwards.
TEST(Conclusion, SaysThatOtherWorkHasDistortedTheTimes) {
  ComparedRun a = example_run("a", 7.0), b = example_run("b", 8.0);
  a.trained[0].result.core_share = 0.5;
  b.trained[0].result.core_share = 0.62;
  EXPECT_EQ(load_notes({a, b}), std::vector<std::string>{});
  b.trained[0].result.core_share = 0.63;
  EXPECT_EQ(
      load_notes({a, b}),
      std::vector<std::string>{"The runs got unequal shares of the cores, from 50% (a) to 63% (b), so their training "
                               "times say little about the models."});
  b.trained[0].result.core_share = 0.5;
  for (const double change : {0.6, 0.81, 1.24, 1.6}) {
    b.trained[0].log.training = {{.step = 10, .seconds = 9.0, .tokens = 100},
                                 {.step = 20, .seconds = 10.0, .tokens = 200},
                                 {.step = 30, .seconds = 11.0, .tokens = 200 + std::lround(100.0 * change)}};
    const std::vector<std::string> notes = load_notes({a, b});
    ASSERT_EQ(notes.size(), change < 0.8 || change > 1.25 ? 1u : 0u) << change;
    if (!notes.empty()) {
      EXPECT_HAS(notes[0], fmt::format("after the first steps, so training times depend on what else was running: b "
                                       "({:.2f} times).",
                                       change));
    }
  }
}

TEST(Conclusion, NamesTheBestModelWithItsDifferenceAndCost) {
  ComparedRun dense = example_run("dense_h8", 7.58, 1000), few = example_run("dense_h2", 8.19, 1000);
  ComparedRun switchhead = example_run("switchhead_h2", 7.37, 376);
  switchhead.trained[0].result.seconds = 72.0;
  EXPECT_EQ(conclude({dense, few, switchhead}),
            (Conclusion{"switchhead_h2 has the best validation perplexity, 7.37, 0.21 below dense_h8 (7.58).",
                        fmt::format("Measured with {}, one seed each: without an interval, a difference may be chance.",
                                    kConditions),
                        "switchhead_h2 takes 0.38 times the attention MACs and 1.20 times the training time of "
                        "dense_h8; no difference in attention memory, MACs of a training step, parameters and peak "
                        "memory."}));
}

TEST(Conclusion, ComparesWithZero) {
  ComparedRun none = example_run("none", 1.0), some = example_run("some", 7.0);
  none.trained[0].result.validation.back().figures["perplexity"] = 0.0;
  EXPECT_EQ(headline_comparison(some, none), "7.00 above none (0.0000)");
  EXPECT_EQ(headline_comparison(none, none), "the same as none (0.0000)");
  none.trained[0].result.validation.back().figures["perplexity"] = std::nan("");
  EXPECT_EQ(headline_comparison(some, none), "not comparable with none (not finite)");
}

ComparedRun diverged(const std::string& name) {
  ComparedRun run = example_run(name, 7.0, 10);
  run.trained[0].diverged = "the loss is nan";
  run.trained[0].result = {};
  return run;
}

TEST(Conclusion, NeverMarksADivergedRunAsBest) {
  const ComparedRun a = example_run("a", 7.0), b = example_run("b", 8.0);
  const std::string apart = "a has the best validation perplexity, 7.00. wild has no finite figure to compare.";
  EXPECT_EQ(conclude({diverged("wild"), a, b}).at(0), apart);
  EXPECT_EQ(conclude({a, diverged("wild")}).at(0), apart);
  const Conclusion points = conclude({a, diverged("wild"), b});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_HAS(points[0], "7.00, 1.00 below b (8.00). wild has no finite figure");
  const Conclusion none = {"No model reached a finite figure."};
  EXPECT_EQ(conclude({diverged("wild"), diverged("mad")}), none);
  EXPECT_EQ(conclude_sweep({a, diverged("wild")}).size(), 1u);
  ComparedRun beyond = example_run("beyond", 7.0);
  beyond.trained[0].result.validation.back().figures["perplexity"] = -INFINITY;
  EXPECT_TRUE(conclude({beyond, a})[0].starts_with("a has the best")) << conclude({beyond, a})[0];
}

TEST(Conclusion, ClaimsADifferenceOfSeveralSeedsWhereItsIntervalExcludesZero) {
  const ComparedRun dense = example_seeds("dense", {7.5, 7.7, 7.6}), moa = example_seeds("moa", {7.0, 7.3, 7.1}, 376);
  EXPECT_EQ(conclude({dense, moa}),
            (Conclusion{
                "moa has the best mean validation perplexity, 7.13 \u00b1 0.15, 0.47 [0.32, 0.61] below dense "
                "(7.60).",
                fmt::format("Measured with {}, 3 seeds each: figures are means, brackets 95% intervals.", kConditions),
                "moa takes 0.38 times the attention MACs of dense; no difference in attention memory, MACs of a "
                "training step, parameters, training time and peak memory."}));
}

TEST(Conclusion, ClaimsNoneWhereItIncludesZero) {
  const Conclusion points = conclude(
      {example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.3, 7.75, 7.5}), example_run("x", 9.0)});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_HAS(points[0], "7.52 \u00b1 0.23, not significantly different from dense (7.60; paired difference -0.08 [");
  EXPECT_HAS(points[0], "], which includes zero).");
  EXPECT_HAS(points[1], "1 to 3 seeds: without an interval");
}

TEST(Conclusion, LeavesOutUnknownCosts) {
  ComparedRun a = example_run("a", 7.0), b = example_run("b", 6.0);
  a.trained[0].result.seconds = 0.0;
  EXPECT_FALSE(says(cost_comparison(b, a), "time")) << cost_comparison(b, a);
}

}  // namespace headroom::compare::words_test

namespace headroom::compare::demo_test {

class DemoTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1); }
};

TEST_F(DemoTest, RecipesHoldTheMatchedSizes) {
  for (const NamedConfig& matched : demo_configs()) {
    const config::Config recipe = config::load_config("demo/" + matched.name);
    EXPECT_EQ(config::to_toml(recipe), config::to_toml(matched.config)) << matched.name;
  }
}

TEST_F(DemoTest, ModelsHaveTheSameSizeAndTraining) {
  const std::vector<NamedConfig> configs = demo_configs();
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_TRUE(training_differences(configs).empty());
  const std::int64_t target = cost::count_parameters(configs[0].config.model);
  EXPECT_GT(target, 2'000'000);
  for (const NamedConfig& named : configs) {
    const std::int64_t count = cost::count_parameters(named.config.model);
    EXPECT_LE(count, target) << named.name;
    EXPECT_GT(count, target - 5000) << named.name;
  }
  EXPECT_EQ(configs[0].config.model.attention.n_heads, 8);
  EXPECT_EQ(configs[1].config.model.attention.n_heads, 2);
  EXPECT_EQ(configs[2].config.model.attention.n_heads, 2);
}

TEST_F(DemoTest, OverridesReachAllModelsBeforeTheyAreMatched) {
  const std::vector<NamedConfig> configs = demo_configs({"train.steps=107", "model.d_model=64"});
  const std::int64_t target = cost::count_parameters(configs[0].config.model);
  for (const NamedConfig& named : configs) {
    EXPECT_EQ(named.config.train.steps, 107);
    EXPECT_EQ(named.config.model.d_model, 64);
    EXPECT_LE(cost::count_parameters(named.config.model), target);
  }
}

}  // namespace headroom::compare::demo_test
