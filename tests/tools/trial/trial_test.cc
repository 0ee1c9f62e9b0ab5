// Trials of tiny models: decisions, reuse of runs, refusals.
#include "tools/trial/trial.h"
#include "tools/trial/report.h"

#include "../compare/example.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::trial {
namespace {

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

TEST_F(TrialTest, AChangeWithoutEffectDiffersByExactlyZeroAndIsDiscarded) {
  TrialRequest same = trial(0.0);
  same.change.config = same.base.config;
  const Trial result = run_trial(same);
  EXPECT_EQ(result.decision, Decision::discard);
  ASSERT_EQ(result.pairs.size(), 1U);
  EXPECT_EQ(result.pairs[0].change - result.pairs[0].base, 0.0);
  EXPECT_EQ(result.trained, 3);  // the base's first three; the change's run is one of them
  // Trained again from scratch, the parameters are bit-identical.
  same.out = folder_ / "again";
  EXPECT_EQ(run_trial(same).pairs[0].change_sha256, result.pairs[0].base_sha256);
}

TEST_F(TrialTest, ABrokenChangeIsDiscardedAfterOnePairAndNothingIsTrainedTwice) {
  const Trial first = run_trial(trial(1e-9));
  EXPECT_EQ(first.decision, Decision::discard);
  EXPECT_EQ(first.pairs.size(), 1U);
  EXPECT_EQ(first.trained, 4);
  const Trial again = run_trial(trial(1e-9));
  EXPECT_EQ(again.trained, 0);
  EXPECT_EQ(again.reused, 4);
  EXPECT_EQ(again.pairs[0].change_sha256, first.pairs[0].change_sha256);
  TrialRequest renamed = trial(1e-9);
  renamed.change.name = "other";
  EXPECT_EQ(run_trial(renamed).trained, 0);
  // Each trial adds one line, and repeating it adds none.
  const std::filesystem::path file = folder_ / "try" / "trials.jsonl";
  const std::string record = read_text_file(file);
  EXPECT_EQ(std::count(record.begin(), record.end(), '\n'), 2);
  // A truncated last line, left by a killed program, is not joined with the next one.
  write_text_file(file, record + "{\"half");
  run_trial(trial(1e-9));
  EXPECT_HAS(read_text_file(file), "{\"half\n{\"decision\"");
}

TEST(TrialEffect, EqualParametersWithOtherFiguresAreAnEffect) {
  Trial trial;
  trial.pairs = {{.base = 14.0, .change = 14.0, .base_sha256 = "same", .change_sha256 = "same"}};
  EXPECT_TRUE(has_no_effect(trial));
  trial.pairs.push_back({.base = 14.0, .change = 15.0, .base_sha256 = "same", .change_sha256 = "same"});
  EXPECT_FALSE(has_no_effect(trial)) << "such as another decoding.beam_size";
}

TEST_F(TrialTest, ABetterChangeIsKept) {
  TrialRequest better = trial(3e-2);
  better.base.config.train.learning_rate = 1e-9;
  const Trial result = run_trial(better);
  EXPECT_EQ(result.decision, Decision::keep);
  EXPECT_LT(result.difference.high, 0.0);
  EXPECT_EQ(to_json(result).at("decision"), "keep");
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

TEST_F(TrialTest, RefusesOtherDataSeedsAndSecondsAndTooShortABudget) {
  const auto refused = [](const TrialRequest& request) { return user_error_of([&] { run_trial(request); }); };
  TrialRequest request = trial(1e-3);
  request.change.config.data.train = {(folder_ / "validation.txt").string()};
  EXPECT_HAS(refused(request), "data.train");
  request = trial(1e-3);
  request.change.config.train.seed += 1;
  EXPECT_HAS(refused(request), "--change-seed");
  request = trial(1e-3);
  request.change.config.train.seconds = 4.0;
  EXPECT_HAS(refused(request), "train.seconds");
  request = trial(1e-3);
  request.budget = 60.0;
  request.base.config.train.steps = request.change.config.train.steps = 100'000'000;
  EXPECT_HAS(refused(request), "try: --budget: 1 min 00 s is shorter than one run of base, about ");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "try" / "runs" / "base")) << "nothing was trained";
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

}  // namespace
}  // namespace headroom::trial
