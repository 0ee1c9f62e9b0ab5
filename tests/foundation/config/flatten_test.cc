#include <gtest/gtest.h>

#include <algorithm>

#include "headroom/config/config.h"

namespace headroom::config {
namespace flatten_test {

std::string value_of(const Config& config, const std::string& wanted) {
  for (const auto& [key, value] : flatten(config)) {
    if (key == wanted) {
      return value;
    }
  }
  return "(absent)";
}

TEST(Flatten, HoldsEveryKeyOnce) {
  std::vector<std::string> names;
  for (const auto& [key, value] : flatten({})) {
    names.push_back(key);
  }
  EXPECT_GT(names.size(), 60u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Flatten, ShowsValuesOfEveryType) {
  Config config;
  config.model.attention.experts = {"v", "o"};
  config.model.adaptive_cutoffs = {20, 40};
  config.train.betas = {0.5, 0.75};
  config.train.precision = Precision::bf16;
  EXPECT_EQ(value_of(config, "model.attention.experts"), "[\"v\", \"o\"]");
  EXPECT_EQ(value_of(config, "model.adaptive_cutoffs"), "[20, 40]");
  EXPECT_EQ(value_of(config, "train.betas"), "[0.5, 0.75]");
  EXPECT_EQ(value_of(config, "train.precision"), "bf16");
  EXPECT_EQ(value_of(config, "model.attention.bias"), "false");
  EXPECT_EQ(value_of(config, "model.d_model"), "256");
  EXPECT_EQ(value_of(config, "tokenizer.model"), "");
}

TEST(TakeValues, OfTheKeysThatAreWanted) {
  Config from, to;
  from.model.d_model = 64;
  from.model.norm = Norm::rms;
  from.model.attention.projection = "experts";
  from.model.attention.experts = {"q"};
  from.train.steps = 7;
  from.tokenizer.model = "x";
  take_values(to, from, [](std::string_view key) { return key.starts_with("model.") && key != "model.d_model"; });
  EXPECT_EQ(value_of(to, "model.d_model"), "256");
  EXPECT_EQ(value_of(to, "model.norm"), "rms");
  EXPECT_EQ(value_of(to, "model.attention.projection"), "experts");
  EXPECT_EQ(value_of(to, "model.attention.experts"), "[\"q\"]");
  EXPECT_EQ(value_of(to, "train.steps"), "1000");
  take_values(to, from, [](std::string_view) { return true; });
  EXPECT_EQ(flatten(to), flatten(from));
}

}  // namespace flatten_test
}  // namespace headroom::config
