// The sequential test by simulation: its error rates and what it costs, as docs/try.md states them.
#include "tools/compare/trial/trial.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::trial::sequential_test_test {

constexpr int kTrials = 4000;

struct Rates {
  double kept = 0.0, discarded = 0.0, runs = 0.0;  // runs: of the change, per trial
};

// Trials of a change that shifts the figure by `effect` standard deviations of seeds; `shared` is the share of the
// variance that both runs of a pair have in common.
Rates simulate(double effect, double shared, const TestOptions& options) {
  std::mt19937_64 random(20);
  std::normal_distribution<double> normal;
  Rates rates;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> common(static_cast<std::size_t>(options.pairs)), base(common.size());
    for (std::size_t i = 0; i < base.size(); ++i) {
      common[i] = std::sqrt(shared) * normal(random);
      base[i] = common[i] + std::sqrt(1.0 - shared) * normal(random);
    }
    std::vector<double> differences;
    Decision decision = Decision::undecided;
    for (std::size_t n = 0; n < base.size() && decision == Decision::undecided; ++n) {
      differences.push_back(effect + common[n] + std::sqrt(1.0 - shared) * normal(random) - base[n]);
      const std::vector<double> known(base.begin(),
                                      base.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(n + 1, 3)));
      decision = decide(differences, compare::sample_deviation(known), options);
    }
    rates.kept += decision == Decision::keep ? 1.0 / kTrials : 0.0;
    rates.discarded += decision == Decision::discard ? 1.0 / kTrials : 0.0;
    rates.runs += static_cast<double>(differences.size()) / kTrials;
  }
  return rates;
}

TEST(SequentialTest, KeepsAnEqualChangeInAtMostOneTrialOfTwenty) {
  for (const int pairs : {3, 4, 8, 16}) {
    for (const double shared : {0.0, 0.5}) {
      // Three standard errors of kTrials trials above the rate.
      EXPECT_LT(simulate(0.0, shared, {.pairs = pairs}).kept, 0.05 + 3.0 * std::sqrt(0.05 * 0.95 / kTrials)) << pairs;
    }
  }
}

TEST(SequentialTest, DiscardsAChangeWorseByTwoDeviationsWithinOneAndAThirdRuns) {
  const Rates rates = simulate(2.0, 0.0, {});
  EXPECT_GT(rates.discarded, 0.99);
  EXPECT_LT(rates.runs, 1.3);
}

TEST(SequentialTest, HasTheStatedPower) {
  EXPECT_NEAR(simulate(-1.0, 0.0, {}).kept, 0.41, 0.03);
  EXPECT_NEAR(simulate(-1.0, 0.5, {}).kept, 0.67, 0.03);
  EXPECT_NEAR(simulate(-2.0, 0.0, {}).kept, 0.90, 0.03);
}

TEST(SequentialTest, LevelsAddUpToTheRate) {
  for (const int pairs : {2, 3, 8}) {
    double sum = 0.0;
    for (int n = 1; n <= pairs; ++n) {
      sum += level_after(n, {.pairs = pairs});
    }
    EXPECT_NEAR(sum, 0.05, 1e-12) << pairs;
  }
}

TEST(SequentialTest, DiscardsChangesThatAreWorseOrHaveNoFigure) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(decide({0.0}, 0.0, {}), Decision::undecided) << "a tie shows nothing";
  EXPECT_EQ(decide({std::numeric_limits<double>::infinity()}, 0.01, {}), Decision::discard);
  EXPECT_EQ(decide({0.001}, unknown, {}), Decision::discard);
  EXPECT_EQ(decide({0.004}, 0.01, {}), Decision::undecided);
  EXPECT_EQ(decide({-0.004}, 0.01, {}), Decision::undecided);
}

TEST(SequentialTest, IntervalExcludesZeroIfTheChangeIsKept) {
  const TestOptions options{.pairs = 4};
  const std::vector<double> clear = {-0.30, -0.31, -0.29, -0.30};
  EXPECT_EQ(decide(clear, 0.01, options), Decision::keep);
  EXPECT_LT(interval(clear, options).high, 0.0);
  EXPECT_TRUE(std::isinf(interval({-0.3}, options).low));
}

}  // namespace headroom::trial::sequential_test_test
