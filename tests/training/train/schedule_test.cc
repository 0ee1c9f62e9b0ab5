#include <gtest/gtest.h>

#include <cmath>

#include "training/train/step/schedule.h"

namespace headroom::train {
namespace schedule_test {

config::TrainOptions options(config::Schedule schedule, std::int64_t steps, std::int64_t warmup, double final = 0.0) {
  config::TrainOptions options;
  options.schedule = schedule;
  options.steps = steps;
  options.warmup_steps = warmup;
  options.learning_rate = 2.0;
  options.final_learning_rate = final;
  return options;
}

TEST(Schedule, WarmsUpLinearly) {
  using enum config::Schedule;
  for (const config::Schedule schedule : {constant, cosine, linear, inverse_sqrt}) {
    const config::TrainOptions o = options(schedule, 100, 4);
    EXPECT_DOUBLE_EQ(learning_rate(o, 0), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(o, 1), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(o, 3), 2.0);
  }
}

TEST(Schedule, ConstantStays) {
  const config::TrainOptions o = options(config::Schedule::constant, 10, 0, 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 9), 2.0);
}

TEST(Schedule, CosineFallsToTheFinalFraction) {
  const config::TrainOptions o = options(config::Schedule::cosine, 14, 2, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 2), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 8), 2.0 * 0.55);                                      // half-way
  EXPECT_DOUBLE_EQ(learning_rate(o, 5), 2.0 * (0.1 + 0.9 * (0.5 + std::sqrt(0.5) / 2)));  // a quarter
  EXPECT_NEAR(learning_rate(o, 14), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(o, 99), 0.2, 1e-12) << "beyond the end";
}

// SwitchHead's large models: 4,000 of 100,000 steps of warm-up leave the last one at 0.0039 of the peak.
TEST(Schedule, ACosineOverAllStepsEndsAboveZero) {
  config::TrainOptions o = options(config::Schedule::cosine, 100000, 4000);
  o.cosine_period = config::CosinePeriod::steps;
  EXPECT_DOUBLE_EQ(learning_rate(o, 4000), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 54000), 1.0) << "half of all steps after the warm-up";
  EXPECT_NEAR(learning_rate(o, 99999), 2.0 * 0.0039, 2e-4);
}

TEST(Schedule, LinearFallsToTheFinalFraction) {
  const config::TrainOptions o = options(config::Schedule::linear, 12, 2, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 2), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 7), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(o, 12), 0.2);
}

TEST(Schedule, InverseSqrtMeetsTheWarmUp) {
  config::TrainOptions o = options(config::Schedule::inverse_sqrt, 1000, 4);
  EXPECT_DOUBLE_EQ(learning_rate(o, 15), 1.0);   // sqrt(4 / 16)
  EXPECT_DOUBLE_EQ(learning_rate(o, 399), 0.2);  // sqrt(4 / 400)
  o.final_learning_rate = 0.25;
  EXPECT_DOUBLE_EQ(learning_rate(o, 399), 0.5) << "never below the final fraction";
  o.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3), 1.0);
}

TEST(Schedule, OneCycleIsATriangle) {
  config::TrainOptions o = options(config::Schedule::one_cycle, 21, 5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 0), 2.0 / 25.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 2), 2.0 * (1.0 / 25.0 + 1.0) / 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 12), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 20), 0.0);
  o.warmup_steps = 0;  // 30% of 21 steps: the peak is step 5
  EXPECT_LT(learning_rate(o, 4), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 5), 2.0);
}

TEST(Schedule, NoStepsAtAll) {
  using enum config::Schedule;
  for (const config::Schedule schedule : {constant, cosine, linear, inverse_sqrt, one_cycle}) {
    for (const std::int64_t warmup : {0, 1, 5}) {
      EXPECT_TRUE(std::isfinite(learning_rate(options(schedule, 1, warmup), 0)));
    }
  }
}

}  // namespace schedule_test
}  // namespace headroom::train
