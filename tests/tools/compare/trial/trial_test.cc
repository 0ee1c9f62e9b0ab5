// Trials of tiny models: decisions, reuse of runs, refusals.
#include "tools/compare/trial/trial.h"

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
  timed.base.config.train.seconds = timed.change.config.train.seconds = 2.0;
  timed.base.config.train.steps = timed.change.config.train.steps = 1000000;
  const Trial result = run_trial(timed);
  const Pair& pair = result.pairs.at(0);
  EXPECT_GT(pair.base_steps, 0);
  EXPECT_LT(pair.base_steps, 1000000);
  EXPECT_EQ(to_json(result)["pairs"][0]["steps"], Json({pair.base_steps, pair.change_steps}));
  EXPECT_HAS(result.sentence, "train.seconds stopped the runs after");
}

// Three pairs have the seeds 1 to 3 of the base, with a tuned rate 1 to 4: no run may be in two pairs.
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

}  // namespace headroom::trial::trial_test
