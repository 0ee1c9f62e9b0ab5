// Trials of tiny models: decisions, reuse of runs, refusals.
#include "tools/trial/trial.h"

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
  // A line for each trial.
  const std::string record = read_text_file(folder_ / "try" / "trials.jsonl");
  EXPECT_EQ(std::count(record.begin(), record.end(), '\n'), 3);
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

TEST_F(TrialTest, RefusesOtherDataAndTooShortABudget) {
  TrialRequest other = trial(1e-3);
  other.change.config.data.train = {(folder_ / "validation.txt").string()};
  try {
    run_trial(other);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("data.train"), std::string::npos) << error.what();
  }
  TrialRequest brief = trial(1e-4);
  brief.budget = 1e-6;
  try {
    run_trial(brief);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--budget"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace headroom::trial
