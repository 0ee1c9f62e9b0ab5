#include "foundation/core/text/nearest.h"

#include <gtest/gtest.h>

namespace headroom {
namespace nearest_test {

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> known = {"train", "evaluate", "generate", "compare", "cost"};
  EXPECT_EQ(nearest("trian", known), "train");
  EXPECT_EQ(nearest("evalute", known), "evaluate");
  EXPECT_EQ(nearest("comparee", known), "compare");
  EXPECT_EQ(nearest("cots", known), "cost");
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest("serve", {"train", "cost"}), "");
  EXPECT_EQ(nearest("", {"train", "cost"}), "");
  EXPECT_EQ(nearest("train", {}), "");
}

}  // namespace nearest_test
}  // namespace headroom
