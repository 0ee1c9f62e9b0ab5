#include "analysis/words.h"

#include <gtest/gtest.h>

#include "analysis/example.h"

namespace headroom::analysis {
namespace words_test {

using testing::example_run;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Conclusion, SaysByHowMuchTheBestBeatsTheFirst) {
  ComparedRun dense = example_run("dense_h8", 7.58, 1000), few = example_run("dense_h2", 8.19, 1000);
  ComparedRun switchhead = example_run("switchhead_h2", 7.37, 376);
  switchhead.result.seconds = 72.0;
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
  a.result.seconds = 0.0;
  EXPECT_FALSE(says(costs_against(b, a), "time")) << costs_against(b, a);
}

}  // namespace words_test
}  // namespace headroom::analysis
