#include "foundation/core/ceil_div.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace headroom {
namespace ceil_div_test {

TEST(CeilDiv, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 3), 0);
  EXPECT_EQ(ceil_div(1, 3), 1);
  EXPECT_EQ(ceil_div(3, 3), 1);
  EXPECT_EQ(ceil_div(4, 3), 2);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ceil_div(kMost, 2), kMost / 2 + 1);
}

TEST(RoundUp, ReturnsAMultiple) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
}

}  // namespace ceil_div_test
}  // namespace headroom
