#include "foundation/config/variation.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"

namespace headroom::config {
namespace variation_test {

TEST(Variation, ValuesStandBetweenCommas) {
  const Variation rate = parse_variation("train.learning_rate=3e-4,1e-3", "--tune");
  EXPECT_EQ(rate.key, "train.learning_rate");
  EXPECT_EQ(rate.values, (std::vector<std::string>{"3e-4", "1e-3"}));
  EXPECT_EQ(parse_variation("a=[v,o],[o]", "--tune").values, (std::vector<std::string>{"[v,o]", "[o]"}));
  EXPECT_EQ(parse_variation("a=\"x,y\",z", "--tune").values, (std::vector<std::string>{"\"x,y\"", "z"}));
  for (const char* wrong : {"", "a", "=1", "a=", "a=1,", "a=,1", "a=1,,2"}) {
    try {
      parse_variation(wrong, "compare: --tune");
      ADD_FAILURE() << wrong;
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("compare: --tune ")) << error.what();
    }
  }
}

}  // namespace variation_test
}  // namespace headroom::config
