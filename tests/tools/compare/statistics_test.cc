#include "tools/compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "headroom/core/error.h"

namespace headroom::compare::statistics_test {

TEST(Statistics, MeanAndDeviation) {
  EXPECT_EQ(mean({2, 4, 9}), 5.0);
  EXPECT_DOUBLE_EQ(sample_deviation({2, 4, 9}), std::sqrt(13.0));
  EXPECT_TRUE(std::isnan(mean({})));
  EXPECT_TRUE(std::isnan(sample_deviation({3})));
  EXPECT_EQ(sample_deviation({3, 3, 3}), 0.0);
}

// The values are from tables of the distribution.
TEST(Student, QuantilesMatchTheTables) {
  struct Known {
    double probability;
    int degrees;
    double t;
  };
  for (const Known& known : {Known{0.975, 1, 12.7062047},
                             {0.975, 2, 4.3026527},
                             {0.975, 3, 3.1824463},
                             {0.975, 4, 2.7764451},
                             {0.975, 5, 2.5705818},
                             {0.975, 9, 2.2621572},
                             {0.975, 10, 2.2281389},
                             {0.975, 30, 2.0422725},
                             {0.975, 100, 1.9839715},
                             {0.95, 7, 1.8945786},
                             {0.995, 2, 9.9248432},
                             {0.9995, 1, 636.6192488},
                             {0.9, 1, 3.0776835},
                             {0.75, 12, 0.6954829},
                             {0.975, 100000, 1.9599877},
                             {0.5, 4, 0.0}}) {
    EXPECT_NEAR(student_quantile(known.probability, known.degrees), known.t, 2e-7 * std::max(1.0, known.t))
        << known.probability << " with " << known.degrees;
    EXPECT_NEAR(student_quantile(1.0 - known.probability, known.degrees), -known.t, 2e-6 * std::max(1.0, known.t));
  }
}

TEST(Student, RefusesInvalidArguments) {
  EXPECT_THROW(student_quantile(0.9, 0), Error);
  for (const double probability : {0.0, 1.0, -1.0, std::nan("")}) {
    EXPECT_THROW(student_quantile(probability, 2), Error) << probability;
  }
}

// The differences 0.1, 0.3 and 0.2 have the mean 0.2 and the deviation 0.1; t(2) = 4.3026527.
TEST(PairedDifference, IsTheMeanWithItsInterval) {
  const auto difference = paired_difference({7.1, 7.3, 7.5}, {7.0, 7.0, 7.3});
  ASSERT_TRUE(difference.has_value());
  const double reach = 4.3026527 * 0.1 / std::sqrt(3.0);
  EXPECT_NEAR(difference->mean, 0.2, 1e-12);
  EXPECT_NEAR(difference->low, 0.2 - reach, 1e-7);
  EXPECT_NEAR(difference->high, 0.2 + reach, 1e-7);
  EXPECT_FALSE(difference->excludes_zero());
  EXPECT_TRUE(paired_difference({1.0, 1.1, 1.0}, {7.0, 7.1, 7.0})->excludes_zero());
}

// The differences 0.9 and 0.1 of accuracies have the interval 0.5 [-4.58, 5.58], cut to [-1, 1].
TEST(PairedDifference, StaysWithinTheRangeOfTheValues) {
  const auto difference = paired_difference({1.0, 0.4}, {0.1, 0.3}, 1.0);
  EXPECT_NEAR(difference->mean, 0.5, 1e-12);
  EXPECT_EQ(difference->low, -1.0);
  EXPECT_EQ(difference->high, 1.0);
  EXPECT_NEAR(paired_difference({1.0, 0.4}, {0.1, 0.3})->low, 0.5 - 12.7062047 * 0.4, 1e-6);
}

TEST(PairedDifference, UsesAvailablePairs) {
  EXPECT_FALSE(paired_difference({7.0}, {6.0}).has_value());
  EXPECT_FALSE(paired_difference({}, {}).has_value());
  EXPECT_FALSE(paired_difference({7.0, std::nan("")}, {6.0, 5.0}).has_value());
  EXPECT_EQ(paired_difference({7.0, 8.0, 100.0}, {6.0, 7.5})->mean, 0.75) << "pairs alone count";
}

}  // namespace headroom::compare::statistics_test
