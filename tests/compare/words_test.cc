#include "compare/words.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compare/example.h"

namespace headroom::compare {
namespace words_test {

using testing::example_run;
using testing::example_seeds;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Conclusion, SaysByHowMuchTheBestBeatsTheFirst) {
  ComparedRun dense = example_run("dense_h8", 7.58, 1000), few = example_run("dense_h2", 8.19, 1000);
  ComparedRun switchhead = example_run("switchhead_h2", 7.37, 376);
  switchhead.trained[0].result.seconds = 72.0;
  const std::string text = conclude({dense, few, switchhead});
  EXPECT_EQ(
      text,
      "switchhead_h2 has the best validation perplexity, 7.37, 2.8% lower than dense_h8 (7.58), at 0.38 times the "
      "attention MACs, the same attention memory, 1.20 times the training time, the same peak memory and as many "
      "parameters; the rest: "
      "dense_h2 with 8.19. Each model was trained once: a difference of a few percent may be chance.");
}

TEST(Conclusion, SaysThatTheFirstIsBestWhenSwitchHeadLoses) {
  const std::string text =
      conclude({example_run("dense_h8", 7.0), example_run("dense_h2", 9.0), example_run("switchhead_h2", 7.7, 250)});
  EXPECT_TRUE(says(text,
                   "dense_h8 has the best validation perplexity, 7.00; switchhead_h2 follows with 7.70, 10.0% "
                   "higher than dense_h8 (7.00), at 0.25 times the attention MACs"))
      << text;
  EXPECT_TRUE(says(text, "; the rest: dense_h2 with 9.00.")) << text;
}

TEST(Conclusion, DoesNotInventADifference) {
  const std::string text = conclude({example_run("a", 7.0), example_run("b", 7.0001)});
  EXPECT_TRUE(says(text, "the same as a (7.00)")) << text;
  EXPECT_FALSE(says(text, "0.0%")) << text;
}

TEST(Conclusion, ComparesWithZero) {
  ComparedRun none = example_run("none", 1.0), some = example_run("some", 7.0);
  none.trained[0].result.validation.back().figures["perplexity"] = 0.0;
  EXPECT_EQ(headline_against(some, none), "higher than none (0.0000)");
  EXPECT_EQ(headline_against(none, none), "the same as none (0.0000)");
  none.trained[0].result.validation.back().figures["perplexity"] = std::nan("");
  EXPECT_EQ(headline_against(some, none), "not comparable with none (not finite)");
}

ComparedRun diverged(const std::string& name) {
  ComparedRun run = example_run(name, 7.0, 10);
  run.trained[0].diverged = "the loss is nan";
  run.trained[0].result = {};
  return run;
}

TEST(Conclusion, NeverNamesWhatDivergedTheBest) {
  const ComparedRun a = example_run("a", 7.0), b = example_run("b", 8.0);
  EXPECT_TRUE(conclude({diverged("wild"), a, b}).starts_with("a has the best validation perplexity, 7.00; the rest: "))
      << conclude({diverged("wild"), a, b});
  const std::string text = conclude({a, diverged("wild")});
  EXPECT_EQ(text,
            "a has the best validation perplexity, 7.00. wild has no finite figure to compare. Each model was trained "
            "once: a difference of a few percent may be chance.");
  EXPECT_TRUE(says(conclude({a, diverged("wild"), b}), "b follows with 8.00")) << conclude({a, diverged("wild"), b});
  EXPECT_EQ(conclude({diverged("wild"), diverged("mad")}), "None of the models came to a finite figure.");
  EXPECT_FALSE(says(conclude_sweep({a, diverged("wild")}), "follows"));
  ComparedRun beyond = example_run("beyond", 7.0);
  beyond.trained[0].result.validation.back().figures["perplexity"] = -INFINITY;
  EXPECT_TRUE(conclude({beyond, a}).starts_with("a has the best")) << conclude({beyond, a});
}

TEST(Conclusion, SaysWhatHasNotBeenValidated) {
  ComparedRun run = example_run("a", 7.0);
  run.trained[0].result.validation.clear();
  EXPECT_EQ(conclude({run}), "a has not been validated yet, after 100 steps.");
}

TEST(Conclusion, ClaimsADifferenceOfSeveralSeedsWhereItsIntervalExcludesZero) {
  const ComparedRun dense = example_seeds("dense", {7.5, 7.7, 7.6}), moa = example_seeds("moa", {7.0, 7.3, 7.1}, 376);
  const std::string text = conclude({dense, moa});
  EXPECT_EQ(text,
            "moa has the best mean validation perplexity, 7.13 \u00b1 0.15, 6.1% lower than dense (7.60; paired "
            "difference -0.47 [-0.61, -0.32]), at 0.38 times the attention MACs, the same attention memory, the same "
            "training time, the same peak memory and as many parameters. Each model was trained with 3 seeds: figures "
            "are means, brackets 95% intervals.");
}

TEST(Conclusion, ClaimsNoneWhereItIncludesZero) {
  const std::string text = conclude(
      {example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.3, 7.75, 7.5}), example_run("x", 9.0)});
  EXPECT_TRUE(says(text, "7.52 \u00b1 0.23, not significantly different from dense (7.60; paired difference -0.08 ["))
      << text;
  EXPECT_TRUE(says(text, "], which includes zero), at the same attention MACs")) << text;
  EXPECT_FALSE(says(text, "% lower")) << text;
  EXPECT_TRUE(says(text, "Some models were trained once")) << text;
}

TEST(Conclusion, SaysThatTwoSeedsHardlyShowAnything) {
  const std::string two = conclude({example_seeds("dense", {7.5, 7.7}), example_seeds("moa", {7.0, 7.3})});
  EXPECT_TRUE(says(two,
                   "trained with 2 seeds: figures are means, brackets 95% intervals. Two seeds can hardly show "
                   "anything: their interval reaches 12.7 standard errors to each side, that of three 4.3."))
      << two;
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7, 0.05);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.3, 0.05);
  EXPECT_FALSE(
      says(conclude({example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.0, 7.3, 7.2})}), "hardly"));
}

TEST(Conclusion, OfASweepNamesTheBestAndTheNext) {
  EXPECT_EQ(
      conclude_sweep({example_run("a 1", 7.0), example_run("a 2", 7.7), example_run("a 3", 9.0)}),
      "a 1 has the best validation perplexity of 3 combinations, 7.00; a 2 follows, 10.0% higher than a 1 (7.00). "
      "Each combination was trained once: a difference of a few percent may be chance.");
  EXPECT_EQ(conclude_sweep({example_run("a", std::nan(""))}), "None of the runs came to a finite figure.");
}

TEST(Conclusion, SpeaksOfOneRunToo) {
  EXPECT_EQ(conclude({example_run("a", 7.0)}), "a has a validation perplexity of 7.00 after 100 steps.");
}

TEST(Conclusion, GivesOnlyTheRangeOfMany) {
  std::vector<ComparedRun> runs = {example_run("best", 5.0)};
  for (const double perplexity : {6.0, 9.0, 8.0, 7.0, 6.5}) {
    runs.push_back(example_run("other", perplexity));
  }
  const std::string text = conclude(runs);
  EXPECT_TRUE(says(text, "; the other 4 lie between 6.50 and 9.00.")) << text;
}

TEST(Conclusion, LeavesOutCostsThatAreNotKnown) {
  ComparedRun a = example_run("a", 7.0), b = example_run("b", 6.0);
  a.trained[0].result.seconds = 0.0;
  EXPECT_FALSE(says(costs_against(b, a), "time")) << costs_against(b, a);
}

}  // namespace words_test
}  // namespace headroom::compare
