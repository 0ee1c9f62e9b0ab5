#include "tools/advise/pilot_runs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::advise {
namespace halving_test {

using Places = std::vector<std::size_t>;
constexpr double kNone = NAN;

TEST(Halving, TheBetterHalfContinuesUntilTwoAreLeft) {
  EXPECT_EQ(round_sizes(8), (Places{8, 4, 2}));
  EXPECT_EQ(round_sizes(7), (Places{7, 4, 2}));
  EXPECT_EQ(round_sizes(3), (Places{3, 2}));
  EXPECT_EQ(round_sizes(2), (Places{2}));
  EXPECT_EQ(round_sizes(1), Places{});
  EXPECT_EQ(round_sizes(0), Places{});
}

TEST(Halving, UnitsAreAllRoundsAndTheSeedsOfTheLast) {
  EXPECT_EQ(halving_units(8), 8.0 + 4.0 * 2.0 + 3.0 * 2.0 * 4.0);
  EXPECT_EQ(halving_units(7), 7.0 + 4.0 * 2.0 + 3.0 * 2.0 * 4.0);
  EXPECT_EQ(halving_units(2), 3.0 * 2.0);
  EXPECT_EQ(halving_units(1), 0.0);
}

TEST(Halving, SurvivorsAreTheLowestScoresInTheirOrder) {
  EXPECT_EQ(survivors({3.0, 1.0, 2.0, 4.0}, 2), (Places{1, 2}));
  EXPECT_EQ(survivors({2.0, 1.0, 1.0}, 2), (Places{1, 2}));
  EXPECT_EQ(survivors({1.0, 1.0, 1.0}, 2), (Places{0, 1})) << "of equal ones the first";
  EXPECT_EQ(survivors({1.0}, 4), (Places{0}));
}

TEST(Halving, DivergedArmsAreWorseThanAnyOther) {
  EXPECT_EQ(survivors({kNone, 9.0, kNone, 5.0}, 2), (Places{1, 3}));
  EXPECT_EQ(survivors({kNone, 9.0, INFINITY}, 2), (Places{0, 1}));
  EXPECT_FALSE(are_close(kNone, 2.0));
  EXPECT_TRUE(decide({kNone}, {2.0}).second);
  EXPECT_FALSE(decide({2.0}, {kNone}).second);
  EXPECT_FALSE(decide({kNone}, {kNone}).second);
  EXPECT_FALSE(decide({2.0, 2.0, 2.0}, {2.0, kNone, 1.9}).second) << "with any seed";
}

TEST(Halving, CloseIsWithinOnePercent) {
  EXPECT_TRUE(are_close(2.0, 2.019));
  EXPECT_TRUE(are_close(2.019, 2.0));
  EXPECT_FALSE(are_close(2.0, 2.021));
}

TEST(Halving, OneSeedDecidesByTheScore) {
  EXPECT_FALSE(decide({2.0}, {2.1}).second);
  EXPECT_TRUE(decide({2.1}, {2.0}).second);
  EXPECT_FALSE(decide({2.0}, {2.0}).second);
}

TEST(Halving, SeveralSeedsMustShowTheSecondToBeBetter) {
  const Verdict clear = decide({2.00, 2.02, 2.01}, {1.99, 2.01, 2.00});
  EXPECT_TRUE(clear.second && !clear.open) << "by 0.01 with every seed";
  const Verdict open = decide({2.00, 2.02, 2.01}, {1.97, 2.03, 1.99});
  EXPECT_TRUE(!open.second && open.open) << "better on average, worse with one seed";
  const Verdict worse = decide({1.99, 2.01, 2.00}, {2.00, 2.02, 2.01});
  EXPECT_TRUE(!worse.second && !worse.open);
}

}  // namespace halving_test
}  // namespace headroom::advise
