// Every combination of parts has costs: layers run on the meta device, where they must read no values of tensors, and
// where every operator needs a kernel (count.cc).
#include <gtest/gtest.h>

#include "engine/nn/combinations.h"
#include "training/cost/cost.h"

namespace headroom::cost::combinations_test {

using testing::Choice;

void expect_costs(const config::ModelOptions& m, const std::string& name) {
  const PaperCost paper = paper_cost(m);
  EXPECT_GT(paper.attention_macs, 0) << name;
  EXPECT_GT(paper.attention_memory, 0) << name;
  const ExecutedCost executed = executed_cost(m, 2);
  EXPECT_GT(executed.attention_macs, 0) << name;
  EXPECT_LE(executed.visible_macs, executed.step_macs) << name;
  EXPECT_EQ(decoding_cache_elements(m) > 0, m.kind == config::ModelKind::language_model) << name;
}

TEST(Combinations, AllHaveCosts) {
  int legal = 0;
  testing::for_products(testing::all_axes(), [&](const std::string& name, config::ModelOptions m) {
    m.n_layers = 1;
    if (testing::refusal(m).empty()) {
      expect_costs(m, name);
      ++legal;
    }
  });
  EXPECT_GE(legal, 2070);
}

TEST(Combinations, OutputGatesHaveCosts) {
  for (const Choice& projection : testing::gated_projections()) {
    config::ModelOptions m = testing::small_model();
    projection.set(m);
    if (testing::refusal(m).empty()) {
      expect_costs(m, projection.name);
    }
  }
}

}  // namespace headroom::cost::combinations_test
