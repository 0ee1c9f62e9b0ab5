// Runs golden cases and operator benchmarks on the device.
#include <gtest/gtest.h>

#include "golden/golden.h"
#include "one_thread.h"
#include "tools/bench/bench.h"
#include "tools/bench/timing.h"

namespace headroom::device::golden_test {

const std::string kCases = std::string(HEADROOM_SOURCE_DIR) + "/tests/golden/cases";

class GoldenCases : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(GoldenCases, AllPass) {
  const auto outcomes = golden::run_cases({kCases}, {.dtype = GetParam(), .device = at::kCUDA});
  EXPECT_GE(outcomes.size(), 75U);
  for (const golden::CaseOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.passed) << golden::outcome_line(outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(Device, GoldenCases, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

TEST(Bench, MissingSidesHaveNoTime) {
  const std::vector<double> times = bench::medians_in_turn({[] {}, {}}, {.repeats = 3, .device = "cuda:0"});
  EXPECT_GE(times[0], 0.0);
  const bench::Row row{.name = "a: fused", .seconds = times[1]};
  EXPECT_TRUE(row.none_here());
  EXPECT_NE(bench::to_table({row}).find("none here"), std::string::npos);
  EXPECT_TRUE(bench::to_json({row})[0].at("seconds").is_null());
}

}  // namespace headroom::device::golden_test
