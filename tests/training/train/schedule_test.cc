#include <gtest/gtest.h>

#include <cmath>

#include "training/train/step/step.h"

namespace headroom::train::schedule_test {

using enum config::Schedule;

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
  for (const config::Schedule schedule : {constant, cosine, linear, inverse_sqrt}) {
    const config::TrainOptions o = options(schedule, 100, 4);
    EXPECT_DOUBLE_EQ(learning_rate(o, 0), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(o, 1), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(o, 3), 2.0);
  }
}

TEST(Schedule, MatchesItsFormula) {
  config::TrainOptions whole = options(cosine, 100000, 4000);  // SwitchHead's large models
  whole.cosine_period = config::CosinePeriod::steps;
  const std::pair<config::TrainOptions, std::vector<std::pair<std::int64_t, double>>> cases[] = {
      {options(constant, 10, 0, 0.5), {{0, 2.0}, {9, 2.0}}},
      {options(cosine, 14, 2, 0.1),
       {{2, 2.0}, {5, 2.0 * (0.1 + 0.9 * (0.5 + std::sqrt(0.5) / 2))}, {8, 2.0 * 0.55}, {14, 0.2}, {99, 0.2}}},
      {whole, {{4000, 2.0}, {54000, 1.0}, {99999, 0.00788}}},  // a cosine over all steps ends at 0.0039 of the peak
      {options(linear, 12, 2, 0.1), {{2, 2.0}, {7, 2.0 * 0.55}, {12, 0.2}}},
      {options(inverse_sqrt, 1000, 4), {{15, 1.0}, {399, 0.2}}},  // sqrt(4 / 16), sqrt(4 / 400)
      {options(inverse_sqrt, 1000, 4, 0.25), {{399, 0.5}}},       // never below the final fraction
      {options(inverse_sqrt, 1000, 0, 0.25), {{0, 2.0}, {3, 1.0}}},
      {options(one_cycle, 21, 5), {{0, 2.0 / 25.0}, {2, 1.0 + 1.0 / 25.0}, {4, 2.0}, {12, 1.0}, {20, 0.0}}},
      {options(one_cycle, 21, 0), {{4, 2.0 * (1.0 / 25.0 + 24.0 / 25.0 * 4.0 / 5.0)}, {5, 2.0}}}};  // 30% of 21 steps
  for (const auto& [o, rates] : cases) {
    for (const auto& [step, rate] : rates) {
      EXPECT_NEAR(learning_rate(o, step), rate, o.steps == 100000 ? 2e-4 : 1e-12)
          << config::name_of(o.schedule) << " " << step;
    }
  }
}

TEST(Schedule, NoStepsAtAll) {
  for (const config::Schedule schedule : {constant, cosine, linear, inverse_sqrt, one_cycle}) {
    for (const std::int64_t warmup : {0, 1, 5}) {
      EXPECT_TRUE(std::isfinite(learning_rate(options(schedule, 1, warmup), 0)));
    }
  }
}

}  // namespace headroom::train::schedule_test
