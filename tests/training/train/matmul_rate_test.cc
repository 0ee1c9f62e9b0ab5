#include "training/train/loop/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headroom::train {
namespace machine_test {

// The chosen size, and the largest size tried, at a speed in FLOP/s.
struct Chosen {
  std::int64_t size = 0, largest_tried = 0;
};
Chosen at_speed(double speed, std::int64_t largest) {
  Chosen chosen;
  chosen.size = detail::large_enough(largest, [&](std::int64_t n) {
    chosen.largest_tried = std::max(chosen.largest_tried, n);
    return 2.0 * static_cast<double>(n * n * n) / speed;
  });
  return chosen;
}

TEST(MatmulRate, StopsAtTheFirstSizeThatTakesLong) {
  const Chosen slow = at_speed(1e9, 8192);  // 4 ms at 128, 34 ms at 256
  EXPECT_EQ(slow.size, 256);
  EXPECT_EQ(slow.largest_tried, 256);
  EXPECT_EQ(at_speed(1e8, 8192).size, 128);
}

TEST(MatmulRate, AFastDeviceMultipliesTheLargest) {
  const Chosen fast = at_speed(5e14, 8192);
  EXPECT_EQ(fast.size, 8192);
  EXPECT_EQ(fast.largest_tried, 4096);
  EXPECT_EQ(at_speed(1e12, 1024).size, 1024);
}

}  // namespace machine_test
}  // namespace headroom::train
