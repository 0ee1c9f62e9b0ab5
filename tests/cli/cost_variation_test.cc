#include "cli/front/cost_variation.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::cli {
namespace cost_variation_test {

std::vector<cost::NamedConfig> two_models() {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return {{"mgk/lra_retrieval_softmax_h8", config::load_config("mgk/lra_retrieval_softmax_h8")},
          {"mgk/lra_retrieval_mgk_h4", config::load_config("mgk/lra_retrieval_mgk_h4")}};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++n;
  }
  return n;
}

// Transformer-MGK's Figure 3 has recipes for each number of heads.
TEST(CostVariation, NumbersOfHeadsCostWhatTheirRecipesCost) {
  const config::Variation heads = config::parse_variation("model.attention.n_heads=1,2,4", "cost: --vary");
  const std::vector<cost::NamedConfig> all = varied(two_models(), heads);
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[4].first, "mgk/lra_retrieval_mgk_h4 n_heads=2");
  const char* const recipes[] = {"softmax_h1", "softmax_h2", "softmax_h4", "mgk_h1", "mgk_h2", "mgk_h4"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const config::Config recipe = config::load_config(std::string("mgk/lra_retrieval_") + recipes[i]);
    EXPECT_EQ(cost::count_parameters(all[i].second.model), cost::count_parameters(recipe.model)) << recipes[i];
    EXPECT_EQ(cost::paper_cost(all[i].second.model).attention_macs, cost::paper_cost(recipe.model).attention_macs);
  }
}

// Transformer-MGK's Figures 3 and 13: with half the heads, a mixture costs less, and its advantage grows with the
// heads.
TEST(CostVariation, ConfigsHaveTheirOwnValues) {
  for (const auto& [mixture, baseline] : {std::pair("mgk/lra_retrieval_mgk_h4", "mgk/lra_retrieval_softmax_h8"),
                                          std::pair("mgk/lra_retrieval_mlk_h4", "mgk/lra_retrieval_linear_h8")}) {
    two_models();  // sets HEADROOM_HOME
    const std::vector<cost::NamedConfig> models = {{mixture, config::load_config(mixture)},
                                                   {baseline, config::load_config(baseline)}};
    const config::Variation heads = config::parse_variation("model.attention.n_heads=1:2,2:4,4:8", "cost: --vary");
    const std::vector<cost::NamedConfig> all = varied(models, heads);
    ASSERT_EQ(all.size(), 6U);
    EXPECT_EQ(all[2].second.model.attention.n_heads, 4);
    EXPECT_EQ(all[5].first, std::string(baseline) + " n_heads=8");
    const auto saved = [&](std::size_t i) {
      const config::Config &own = all[i].second, &other = all[i + 3].second;
      const auto step = [](const config::Config& c) {
        return cost::executed_cost(c.model, c.whole_sequences()).step_macs;
      };
      return std::vector<std::int64_t>{
          cost::count_parameters(other.model) - cost::count_parameters(own.model),
          cost::paper_cost(other.model).attention_macs - cost::paper_cost(own.model).attention_macs,
          step(other) - step(own)};
    };
    for (std::size_t figure = 0; figure < 3; ++figure) {
      EXPECT_GT(saved(0)[figure], 0) << mixture << " " << figure;
      EXPECT_GT(saved(1)[figure], saved(0)[figure]) << mixture << " " << figure;
      EXPECT_GT(saved(2)[figure], saved(1)[figure]) << mixture << " " << figure;
    }
    EXPECT_NE(drawn(models, heads, all).find("n_heads of lra_retrieval_m"), std::string::npos);
  }
}

TEST(CostVariation, DrawsALineEachAndNamesValuesThatAreNotNumbers) {
  const std::vector<cost::NamedConfig> models = two_models();
  for (const char* text : {"model.attention.n_heads=1,2,4", "model.norm=rms,layer", "model.attention.n_heads=4,2"}) {
    const config::Variation variation = config::parse_variation(text, "cost: --vary");
    const std::string page = drawn(models, variation, varied(models, variation));
    EXPECT_TRUE(page.starts_with("<!doctype html>")) << page.substr(0, 80);
    EXPECT_GE(count_of(page, "\"name\":\"lra_retrieval_mgk_h4\""), 3U) << text;  // in each of three charts
    EXPECT_GE(count_of(page, variation.key), 3U) << text;
  }
}

TEST(CostVariation, RefusesUnsuitableKeysAndConfigs) {
  const auto refused = [](const std::string& text) {
    try {
      varied(two_models(), config::parse_variation(text, "cost: --vary"));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(refused("model.heads=1,2").find("--vary") != std::string::npos) << refused("model.heads=1,2");
  EXPECT_TRUE(refused("model.attention.n_heads=0").find("--vary") != std::string::npos);
  EXPECT_TRUE(refused("model.attention.n_heads=1:2:4").find("has 3 values for 2 configs") != std::string::npos);
  EXPECT_TRUE(refused("model.attention.n_kv_heads=3").starts_with("--vary: model.attention.n_kv_heads: "));
}

}  // namespace cost_variation_test
}  // namespace headroom::cli
