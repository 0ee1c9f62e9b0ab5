#include "training/train/record/history.h"

#include <gtest/gtest.h>

namespace headroom::train::recorded_losses_test {

// Returns the history of a run of 200 steps, logged every 10, whose loss at step s is 10 - s / 50.
History history_until(std::int64_t step) {
  History history;
  for (std::int64_t s = 10; s <= step; s += 10) {
    history.training.push_back({.step = s, .loss = 10.0 - static_cast<double>(s) / 50.0});
  }
  return history;
}

TEST(RecordedLosses, AreComparedAtTheRecordedSharesOnly) {
  const std::vector<double> recorded = {9.8, 9.6, 9.0, 8.0, 6.0};
  for (std::int64_t step = 10; step <= 200; step += 10) {
    const bool marked = step == 10 || step == 20 || step == 50 || step == 100 || step == 200;
    EXPECT_EQ(compare_with_recorded(recorded, history_until(step), 200).empty(), !marked) << step;
  }
  EXPECT_EQ(compare_with_recorded({}, history_until(10), 200), "");
}

TEST(RecordedLosses, StateTheDifferenceOfARun) {
  EXPECT_EQ(compare_with_recorded({9.8, 9.6, 9.2, 8.0, 6.0}, history_until(50), 200),
            "step 50 (25%): training loss 9, as recorded (9.2)");
  EXPECT_EQ(compare_with_recorded({9.8, 9.6, 9.5, 8.0, 6.0}, history_until(50), 200),
            "step 50 (25%): training loss 9, 0.5 below the recorded 9.5");
}

TEST(RecordedLosses, TheKeyHasTheLossesThatARunIsComparedWith) {
  EXPECT_EQ(losses_key(history_until(200), 200), "losses = [9.8, 9.6, 9, 8, 6]");
  EXPECT_EQ(losses_key(history_until(100), 200), "");
}

// If a shorter run logs less often than every 5% of the steps, the next logged line counts.
TEST(RecordedLosses, FollowTheLinesThatAreLogged) {
  History history;
  for (const std::int64_t step : {30, 60, 90, 120, 150, 180, 200}) {
    history.training.push_back({.step = step, .loss = 5.0});
  }
  EXPECT_EQ(losses_key(history, 200), "") << "5 and 10% fall on one line";
}

// A mean over 60 steps is not the loss at 50%.
TEST(RecordedLosses, AreNotComparedWithMeansOfLongIntervals) {
  History history;
  for (const std::int64_t step : {60, 100}) {
    history.training.push_back({.step = step, .loss = 5.0});
    EXPECT_EQ(compare_with_recorded({9.0, 8.0, 7.0, 6.0, 5.0}, history, 100), "") << step;
  }
}

TEST(RecordedLosses, OfFewStepsMatchSingleSteps) {
  History history;
  for (std::int64_t step = 1; step <= 15; ++step) {
    history.training.push_back({.step = step, .loss = static_cast<double>(20 - step)});
  }
  EXPECT_EQ(losses_key(history, 15), "losses = [19, 18, 16, 12, 5]");
}

}  // namespace headroom::train::recorded_losses_test
