#include "tools/compare/demo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "example.h"
#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::compare {
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

TEST_F(DemoTest, ModelsAreOfOneSizeAndTreatedAlike) {
  const std::vector<NamedConfig> configs = demo_configs();
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_TRUE(check_fairness(configs).empty());
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

TEST_F(DemoTest, SaysWhatCameOut) {
  std::vector<ComparedRun> runs = {example_run("dense_h8", 7.58), example_run("dense_h2", 8.19),
                                   example_run("switchhead_h2", 7.37, 376)};
  runs[0].config.model.attention.n_heads = 8;
  runs[1].config.model.attention.n_heads = runs[2].config.model.attention.n_heads = 2;
  EXPECT_EQ(
      conclude_demo(runs),
      (Conclusion{
          "With 2 attention matrices a layer, SwitchHead has a validation perplexity of 7.37.",
          "That is 2.8% lower than dense_h8 (7.58), which has 8, and 10.0% lower than dense_h2 (8.19), which has 2. "
          "Of the dense models the one with fewer heads is 8.0% higher. Each model was trained once: without an "
          "interval no difference is shown to be real.",
          "switchhead_h2 takes 0.38 times the attention MACs of dense_h8; no difference in attention memory, training "
          "time, peak memory and parameters."}));
  runs[1].trained[0].result.validation.back().figures["perplexity"] = 7.65;
  EXPECT_NE(conclude_demo(runs)[1].find("does not show at this size and after so few steps (7.65 with 2, 7.58 with 8)"),
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
