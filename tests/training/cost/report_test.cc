// The JSON and the tables of the reports.
#include "training/cost/report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "folder_test.h"
#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace report_test {

class Report : public ::testing::Test {
 protected:
  void SetUp() override { setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1); }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_F(Report, CostJsonHasTheContractsKeys) {
  const config::Config config = recipe("switchhead/wt103_47m");
  const Json json = cost_json("small", config);
  const ExecutedCost executed = executed_cost(config.model, 64);
  const StepMemory memory = step_memory(config);
  EXPECT_EQ(json, Json({{"name", "small"},
                        {"parameters", 47'247'416},
                        {"attention_macs", 170'364'928},
                        {"attention_memory", 762'880},
                        {"executed",
                         {{"attention_macs", executed.attention_macs},
                          {"mlp_macs", executed.mlp_macs},
                          {"head_macs", executed.head_macs},
                          {"step_macs", executed.step_macs},
                          {"visible_macs", executed.visible_macs}}},
                        {"decoding_cache_numbers", 16 * 512 * 2 * 2 * 76},
                        {"step_memory",
                         {{"parameters", 4 * 47'247'416},
                          {"gradients", 4 * 47'247'416},
                          {"moments", 8 * 47'247'416},
                          {"activations", memory.activations},
                          {"total", memory.total}}}}));
}

TEST_F(Report, CostTableIsAligned) {
  const auto lines = lines_of(cost_table(
      {{"switchhead", recipe("switchhead/wt103_47m")}, {"a longer name", recipe("switchhead/wt103_47m_dense_h10")}}));
  ASSERT_GE(lines.size(), 3u);
  EXPECT_TRUE(lines[1].starts_with("switchhead     47,247,416  170.4M  762.9K  ")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("a longer name  47,260,120  453.4M    3.5M  ")) << lines[2];
  EXPECT_EQ(lines[1].size(), lines[2].size());
}

TEST_F(Report, PaperRowsSayWhetherTheyAgree) {
  const Json rows = paper_json("switchhead");
  ASSERT_EQ(rows.size(), 50u);
  EXPECT_EQ(rows[4]["printed"], "170.4M");
  EXPECT_EQ(rows[4]["computed"], 170'364'928);
  const std::string text = paper_table("switchhead");
  EXPECT_HAS(text, "50 of 50 derivable figures agree");
  EXPECT_HAS(text, "453,427,200     yes");
}

TEST_F(Report, MatchJsonHoldsAConfigThatCanBeRun) {
  const MatchResult result =
      match(recipe("switchhead/wt103_47m"), recipe("switchhead/wt103_47m_dense_h10"), MatchBy::parameters);
  const Json json = match_json(result);
  EXPECT_EQ(json["parameters"], 47'247'416);
  EXPECT_EQ(json["target"], 47'260'120);
  const config::Config config = config::parse_config(json["config"].get<std::string>(), "match");
  EXPECT_EQ(count_parameters(config.model), 47'247'416);
  EXPECT_EQ(json["candidates"].size(), 3u);
  const std::string text = match_summary(result);
  EXPECT_HAS(text, "47,247,416     170,364,928");

  const Json macs =
      match_json(match(recipe("switchhead/c4_47m"), recipe("switchhead/wt103_47m_dense_h10"), MatchBy::macs));
  EXPECT_EQ(macs["by"], "macs");
  EXPECT_EQ(macs["target"], 453'427'200);
  EXPECT_EQ(macs["attention_macs"], 445'091'840);
}

}  // namespace report_test
}  // namespace headroom::cost
