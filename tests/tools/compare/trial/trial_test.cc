// Tests trials of tiny models, and by simulation the sequential test's error rates and costs in docs/try.md.
#include "tools/compare/trial/trial.h"

#include <random>

#include "../example.h"

namespace headroom::trial::trial_test {

class TrialTest : public compare::compare_fixture::CompareTest {
 protected:
  TrialRequest trial(double learning_rate) const {
    TrialRequest request;
    request.base = config("base", 2);
    request.change = config("change", 2);
    request.change.config.train.learning_rate = learning_rate;
    request.out = folder_ / "try";
    request.cache = folder_ / "cache";
    request.test.pairs = 3;
    return request;
  }
};

TEST(TrialEffect, EqualParametersWithOtherFiguresAreAnEffect) {
  Trial trial;
  trial.pairs = {{.base = 14.0, .change = 14.0, .base_sha256 = "same", .change_sha256 = "same"}};
  EXPECT_TRUE(has_no_effect(trial));
  trial.pairs.push_back({.base = 14.0, .change = 15.0, .base_sha256 = "same", .change_sha256 = "same"});
  EXPECT_FALSE(has_no_effect(trial)) << "such as another decoding.beam_size";
}

TEST_F(TrialTest, TuningFindsEachSidesRateWithAnotherSeed) {
  TrialRequest tuned = trial(1e-5);
  tuned.base.config.train.learning_rate = 1e-5;
  tuned.change.config.model.attention.bias = true;
  tuned.tune = true;
  const Trial result = run_trial(tuned);
  EXPECT_GT(result.base_learning_rate, 1e-5);
  ASSERT_FALSE(result.pairs.empty());
  EXPECT_EQ(result.pairs[0].base_seed, tuned.base.config.train.seed + 1);
}

TEST_F(TrialTest, RunsStoppedByTheClockAreToldByTheirSteps) {
  TrialRequest timed = trial(1e-9);
  timed.base.config.train.seconds = timed.change.config.train.seconds = 0.2;
  timed.base.config.train.steps = timed.change.config.train.steps = 1000000;
  const Trial result = run_trial(timed);
  const Pair& pair = result.pairs.at(0);
  EXPECT_GT(pair.base_steps, 0);
  EXPECT_LT(pair.base_steps, 1000000);
  EXPECT_EQ(to_json(result)["pairs"][0]["steps"], Json({pair.base_steps, pair.change_steps}));
  EXPECT_HAS(result.sentence, "train.seconds stopped the runs after");
}

// Three pairs have the base's seeds 1 to 3, with a tuned rate 1 to 4: no run may be in two pairs.
TEST_F(TrialTest, RefusesSeedsOfTheChangeThatTheBaseHasInAnotherPair) {
  TrialRequest request = trial(1e-9);
  for (const std::int64_t seed : {2, 3, 0}) {
    request.change_seed = seed;
    EXPECT_HAS(user_error_of([&] { run_trial(request); }), "--change-seed: ");
  }
  request.change_seed = 4;
  request.tune = true;
  EXPECT_HAS(user_error_of([&] { run_trial(request); }), "give 5 or more");
  request.tune = false;
  EXPECT_EQ(run_trial(request).pairs.at(0).change_seed, 4);
}

constexpr int kTrials = 4000;

struct Rates {
  double kept = 0.0, discarded = 0.0, runs = 0.0;  // runs: of the change, per trial
};

// Simulates trials of a change that shifts the figure by `effect` standard deviations of seeds. `shared` is the share
// of the variance that both runs of a pair have in common.
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
      // Returns the rate plus three standard errors of kTrials trials.
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

}  // namespace headroom::trial::trial_test
