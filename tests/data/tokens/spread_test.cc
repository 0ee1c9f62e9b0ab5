#include "data/tokens/example_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "foundation/core/random.h"

namespace headroom::data {
namespace spread_test {

TEST(SpreadRanges, AreOfEqualLengthsWithEqualGaps) {
  for (std::int64_t size = 1; size <= 40; ++size) {
    for (std::int64_t count = 1; count <= size; ++count) {
      for (std::int64_t ranges = 1; ranges <= count; ++ranges) {
        const std::vector<UnitRange> all = spread_ranges(size, count, ranges);
        ASSERT_EQ(std::ssize(all), ranges);
        std::int64_t total = 0, before = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const std::int64_t length = all[i].end - all[i].begin, gap = all[i].begin - before;
          EXPECT_TRUE(length == count / ranges || length == count / ranges + 1);
          const std::int64_t unread = size - count, least = i == 0 ? unread / (2 * ranges) : unread / ranges;
          EXPECT_TRUE(gap == least || gap == least + 1) << size << " " << count << " " << ranges;
          total += length;
          before = all[i].end;
        }
        EXPECT_EQ(total, count);
        EXPECT_LE(before, size);
        EXPECT_LE(size - before, (size - count) / (2 * ranges) + 1) << "as much after the last as before the first";
      }
    }
  }
}

TEST(SpreadUnits, AreAllOfThemWithoutALimitThatTheyExceed) {
  std::vector<std::int64_t> all(17);
  std::iota(all.begin(), all.end(), 0);
  const auto cost = [](std::int64_t unit) { return unit + 1; };
  EXPECT_EQ(spread_units(17, 0, cost), all);
  EXPECT_EQ(spread_units(17, 17 * 18 / 2, cost), all);
  EXPECT_LT(spread_units(17, 17 * 18 / 2 - 1, cost).size(), 17u);
  EXPECT_EQ(spread_units(0, 5, cost).size(), 0u);
}

TEST(SpreadUnits, MeetTheLimitAndHaveTheMeanOfAll) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    const auto size = static_cast<std::int64_t>(200 + random.below(800));
    std::vector<std::int64_t> costs;
    for (std::int64_t unit = 0; unit < size; ++unit) {
      costs.push_back(static_cast<std::int64_t>(1 + random.below(9)));
    }
    const std::int64_t all = std::accumulate(costs.begin(), costs.end(), std::int64_t{0}), most = all / 5;
    const std::vector<std::int64_t> units =
        spread_units(size, most, [&](std::int64_t unit) { return costs[static_cast<std::size_t>(unit)]; });
    std::int64_t sum = 0, positions = 0;
    for (const std::int64_t unit : units) {
      sum += costs[static_cast<std::size_t>(unit)];
      positions += unit;
    }
    EXPECT_LE(sum, most);
    EXPECT_GE(sum, most * 8 / 10);
    EXPECT_TRUE(std::ranges::is_sorted(units));
    // A value that rises along the data must have the same mean in the selected part.
    EXPECT_NEAR(static_cast<double>(positions) / static_cast<double>(units.size()), static_cast<double>(size - 1) / 2.0,
                1.0);
  }
}

TEST(SpreadUnits, AreAtLeastOne) {
  EXPECT_EQ(spread_units(9, 1, [](std::int64_t) { return 100; }), std::vector<std::int64_t>{4}) << "the middle one";
}

}  // namespace spread_test
}  // namespace headroom::data
