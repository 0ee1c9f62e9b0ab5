#include "tools/bench/growth.h"

#include <gtest/gtest.h>

namespace headroom::bench {
namespace growth_test {

TEST(Growth, FindsTheExponentOfAPowerLaw) {
  std::vector<draw::Point> square;
  for (const double x : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    square.push_back({x, x < 3.0 ? 48.0 : 3.0 * x * x});  // flat, then a square
  }
  EXPECT_NEAR(exponent(square, 3), 2.0, 1e-12);
  EXPECT_LT(exponent(square), 1.9);
}

}  // namespace growth_test
}  // namespace headroom::bench
