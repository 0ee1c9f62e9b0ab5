#include "foundation/core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace headroom::random_test {

TEST(Mix, IsTheSplitMix64Sequence) {
  // The published generator returns these values with seed 1234567.
  const std::uint64_t expected[] = {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL};
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(mix(1234567, i), expected[i]);
  }
}

TEST(RandomTest, BelowIsEven) {
  Random random(1);
  std::array<int, 7> counts{};
  constexpr int kDraws = 70'000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts.at(random.below(7));
  }
  for (const int count : counts) {  // within 5 standard deviations
    EXPECT_NEAR(count, kDraws / 7.0, 5 * std::sqrt(kDraws / 7.0));
  }
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_LT(random.below(UINT64_MAX), UINT64_MAX);
}

TEST(RandomTest, UniformFillsTheInterval) {
  Random random(3);
  double sum = 0, low = 1, high = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.uniform();
    ASSERT_TRUE(x >= 0 && x < 1);
    sum += x;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_LT(low, 1e-3);
  EXPECT_GT(high, 1 - 1e-3);
}

}  // namespace headroom::random_test
