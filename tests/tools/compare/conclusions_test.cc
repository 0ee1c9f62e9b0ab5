#include "tools/compare/figures/conclusions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "example.h"
#include "headroom/core/error.h"
#include "tools/compare/compare.h"
#include "tools/compare/run/checks.h"
#include "training/cost/cost.h"

namespace headroom::compare {

namespace words_test {

using testing::example_run;
using testing::example_seeds;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Conclusion, NamesTheBestModelWithItsDifferenceAndCost) {
  ComparedRun dense = example_run("dense_h8", 7.58, 1000), few = example_run("dense_h2", 8.19, 1000);
  ComparedRun switchhead = example_run("switchhead_h2", 7.37, 376);
  switchhead.trained[0].result.seconds = 72.0;
  EXPECT_EQ(conclude({dense, few, switchhead}),
            (Conclusion{"switchhead_h2 has the best validation perplexity, 7.37.",
                        "That is 2.8% lower than dense_h8 (7.58). Each model was trained once: without an interval, a "
                        "difference may be chance.",
                        "switchhead_h2 takes 0.38 times the attention MACs and 1.20 times the training time of "
                        "dense_h8; no difference in attention memory, peak memory and parameters."}));
}

TEST(Conclusion, SaysThatTheFirstIsBestWhenSwitchHeadLoses) {
  const Conclusion points =
      conclude({example_run("dense_h8", 7.0), example_run("dense_h2", 9.0), example_run("switchhead_h2", 7.7, 250)});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0], "dense_h8 has the best validation perplexity, 7.00.");
  EXPECT_TRUE(points[1].starts_with("switchhead_h2 follows with 7.70, 10.0% higher than dense_h8 (7.00)."))
      << points[1];
  EXPECT_TRUE(points[2].starts_with("switchhead_h2 takes 0.25 times the attention MACs of dense_h8; no difference"))
      << points[2];
}

TEST(Conclusion, DoesNotInventADifference) {
  const Conclusion points = conclude({example_run("a", 7.0), example_run("b", 7.0001)});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_HAS(points[1], "the same as a (7.00)");
  EXPECT_FALSE(says(points[1], "0.0%")) << points[1];
  EXPECT_EQ(points[2], "b costs as much as a.");
}

TEST(Conclusion, ComparesWithZero) {
  ComparedRun none = example_run("none", 1.0), some = example_run("some", 7.0);
  none.trained[0].result.validation.back().figures["perplexity"] = 0.0;
  EXPECT_EQ(headline_comparison(some, none), "higher than none (0.0000)");
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
  const Conclusion apart = {
      "a has the best validation perplexity, 7.00. wild has no finite figure to compare. Each model was trained once: "
      "without an interval, a difference may be chance."};
  EXPECT_EQ(conclude({diverged("wild"), a, b}), apart);
  EXPECT_EQ(conclude({a, diverged("wild")}), apart);
  const Conclusion points = conclude({a, diverged("wild"), b});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_TRUE(says(points[0], "wild has no finite figure") && says(points[1], "b follows with 8.00")) << points[1];
  const Conclusion none = {"No model reached a finite figure."};
  EXPECT_EQ(conclude({diverged("wild"), diverged("mad")}), none);
  EXPECT_EQ(conclude_sweep({a, diverged("wild")}).size(), 1u);
  ComparedRun beyond = example_run("beyond", 7.0);
  beyond.trained[0].result.validation.back().figures["perplexity"] = -INFINITY;
  EXPECT_TRUE(conclude({beyond, a})[0].starts_with("a has the best")) << conclude({beyond, a})[0];
}

TEST(Conclusion, OfOneRunStatesItsResults) {
  ComparedRun run = example_run("a", 7.0);
  EXPECT_EQ(
      conclude({run}),
      (Conclusion{"a has a validation perplexity of 7.00 after 100 steps.",
                  "It took 1 min 00 s of training at 1.23 k tokens per second and at most 300.0 MiB of memory."}));
  run.trained[0].result.validation[3].figures["perplexity"] = 6.5;
  EXPECT_EQ(conclude({run}).at(1), "Its best value was 6.50, at step 80.");
  run.trained[0].result.validation[3].predictions = 64;  // the last one read all data
  EXPECT_TRUE(conclude({run}).at(1).starts_with("It took")) << conclude({run}).at(1);
  run.trained[0].result.validation[3].predictions = 0;
  run.config.train.steps = 400;
  EXPECT_TRUE(conclude({run}).at(2).starts_with("So far, it took 1 min 00 s")) << conclude({run}).at(2);
  run.trained[0].result.validation.clear();
  run.trained[0].result.seconds = 0.0;
  EXPECT_EQ(conclude({run}), Conclusion{"a has not been validated yet, after 100 of 400 steps."});
}

TEST(Conclusion, ClaimsADifferenceOfSeveralSeedsWhereItsIntervalExcludesZero) {
  const ComparedRun dense = example_seeds("dense", {7.5, 7.7, 7.6}), moa = example_seeds("moa", {7.0, 7.3, 7.1}, 376);
  EXPECT_EQ(conclude({dense, moa}),
            (Conclusion{"moa has the best mean validation perplexity, 7.13 \u00b1 0.15.",
                        "That is 6.1% lower than dense (7.60; paired difference -0.47 [-0.61, -0.32]). Each model was "
                        "trained with 3 seeds; figures are means, brackets 95% intervals.",
                        "moa takes 0.38 times the attention MACs of dense; no difference in attention memory, training "
                        "time, peak memory and parameters."}));
}

TEST(Conclusion, ClaimsNoneWhereItIncludesZero) {
  const Conclusion points = conclude(
      {example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.3, 7.75, 7.5}), example_run("x", 9.0)});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_HAS(points[0], "7.52 \u00b1 0.23.");
  EXPECT_HAS(points[1], "That is not significantly different from dense (7.60; paired difference -0.08 [");
  EXPECT_HAS(points[1], "], which includes zero).");
  EXPECT_FALSE(says(points[1], "% lower")) << points[1];
  EXPECT_HAS(points[1], "Some models were trained once");
}

// All sentences as one text.
std::string said(const Conclusion& points) {
  std::string all;
  for (const std::string& point : points) {
    all += point + " ";
  }
  return all;
}

TEST(Conclusion, SaysThatTwoSeedsHardlyShowAnything) {
  const std::string two = said(conclude({example_seeds("dense", {7.5, 7.7}), example_seeds("moa", {7.0, 7.3})}));
  EXPECT_HAS(two, "very wide: 12.7 standard errors to each side, with three seeds 4.3.");
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7, 0.05);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.3, 0.05);
  EXPECT_FALSE(says(said(conclude({example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.0, 7.3, 7.2})})),
                    "very wide"));
}

TEST(Conclusion, OfASweepNamesTheBestAndTheNext) {
  EXPECT_EQ(conclude_sweep({example_run("a 1", 7.0), example_run("a 2", 7.7), example_run("a 3", 9.0)}),
            (Conclusion{"a 1 has the best validation perplexity of 3 combinations, 7.00.",
                        "a 2 follows with 7.70, 10.0% higher than the best (7.00). Each combination was trained once: "
                        "without an interval, a difference may be chance."}));
  EXPECT_EQ(conclude_sweep({example_run("a", std::nan(""))}), Conclusion{"No run reached a finite figure."});
}

TEST(Conclusion, LeavesOutUnknownCosts) {
  ComparedRun a = example_run("a", 7.0), b = example_run("b", 6.0);
  a.trained[0].result.seconds = 0.0;
  EXPECT_FALSE(says(cost_comparison(b, a), "time")) << cost_comparison(b, a);
}

}  // namespace words_test

namespace demo_test {

using testing::example_run;

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

TEST_F(DemoTest, InterpretsTheResults) {
  std::vector<ComparedRun> runs = {example_run("dense_h8", 7.58), example_run("dense_h2", 8.19),
                                   example_run("switchhead_h2", 7.37, 376)};
  runs[0].config.model.attention.n_heads = 8;
  runs[1].config.model.attention.n_heads = runs[2].config.model.attention.n_heads = 2;
  EXPECT_EQ(conclude_demo(runs),
            (Conclusion{"With 2 attention matrices per layer, SwitchHead has a validation perplexity of 7.37.",
                        "That is 2.8% lower than dense_h8 (7.58), which has 8, and 10.0% lower than dense_h2 (8.19), "
                        "which has 2. Among the dense models, the one with fewer heads is 8.0% higher. Each model was "
                        "trained once: without an interval, a difference may be chance.",
                        "switchhead_h2 takes 0.38 times the attention MACs of dense_h8; no difference in attention "
                        "memory, training time, peak memory and parameters."}));
  runs[1].trained[0].result.validation.back().figures["perplexity"] = 7.65;
  EXPECT_NE(
      conclude_demo(runs)[1].find("too small to show what fewer heads cost a dense model (7.65 with 2, 7.58 with 8)"),
      std::string::npos);
  runs[1].trained[0].result.validation.back().figures["perplexity"] = 8.19;
  runs[2].trained[0].result.validation.back().figures["perplexity"] = 8.0;
  const std::string lost = conclude_demo(runs)[1];
  EXPECT_NE(lost.find("That is 5.5% higher than dense_h8 (7.58), which has 8, and 2.3% lower than dense_h2"),
            std::string::npos)
      << lost;
}

}  // namespace demo_test

}  // namespace headroom::compare
