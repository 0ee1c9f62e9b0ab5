#include "training/train/loop/pace.h"

#include <gtest/gtest.h>

namespace headroom::train {
namespace pace_test {

config::Config with_steps(std::int64_t steps) {
  config::Config config;
  config.train.steps = steps;
  config.train.batch_size = 16;
  return config;
}

TEST(Pace, ValidatesTwentyTimesWhereThatIsCheap) {
  EXPECT_EQ(steps_between_validations(with_steps(1000), 16.0), 50);
  EXPECT_EQ(steps_between_validations(with_steps(1010), 16.0), 51);
  EXPECT_EQ(steps_between_validations(with_steps(1000), 0.0), 50);
}

// 160 rows are ten batches read forward: four steps.
TEST(Pace, ValidatesLessOftenWhereItWouldTakeLong) {
  const std::int64_t every = steps_between_validations(with_steps(2000), 160.0);
  EXPECT_GT(every, 100);
  EXPECT_LE(4.0 / static_cast<double>(every), 0.011);
  EXPECT_GT(4.0 / static_cast<double>(every - 1), 0.011);
  EXPECT_EQ(steps_between_validations(with_steps(300), 160.0), 0) << "at the end only";
  EXPECT_EQ(steps_between_validations(with_steps(1), 0.0), 0);
}

TEST(Pace, WritesTenCheckpointsOrOneEveryTenMinutes) {
  EXPECT_EQ(steps_between_checkpoints(1000, 1.0, 30e6), 100);
  const std::int64_t long_run = steps_between_checkpoints(100'000, 1.0, 30e6);
  EXPECT_LE(long_run, 600);
  EXPECT_GE(long_run, 400);
  EXPECT_EQ(steps_between_checkpoints(100, 1000.0, 30e6), 1) << "a step takes longer";
}

TEST(Pace, WritesFewerCheckpointsWhereTheyWouldTakeLong) {
  const double seconds = 0.03 + 30e6 / 2e8;
  const std::int64_t every = steps_between_checkpoints(2000, 0.05, 30e6);
  EXPECT_GT(every, 200);
  EXPECT_LE(seconds / (static_cast<double>(every) * 0.05), 0.006);
  EXPECT_GT(seconds / (static_cast<double>(every - 1) * 0.05), 0.006);
  EXPECT_EQ(steps_between_checkpoints(100, 0.001, 1e3), 0) << "done in a tenth of a second";
  // 100 GB to a slow disk cost more than eight minutes of steps are worth.
  EXPECT_GT(steps_between_checkpoints(1'000'000, 1.0, 1e11), 540);
}

TEST(Pace, IsSaid) {
  config::TrainOptions options;
  options.evaluate_every = 50;
  EXPECT_EQ(describe_pace(options),
            "validates every 50 steps and at the end (train.evaluate_every), writes a checkpoint as often as the first "
            "steps tell (train.checkpoint_every)");
  options.evaluate_every = options.checkpoint_every = 0;
  EXPECT_EQ(describe_pace(options),
            "validates at the end only (train.evaluate_every), writes a checkpoint at the end only "
            "(train.checkpoint_every)");
}

}  // namespace pace_test
}  // namespace headroom::train
