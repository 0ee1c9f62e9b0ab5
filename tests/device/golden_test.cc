// Every reference case on the pretended device.
#include "tools/golden/golden.h"

#include <gtest/gtest.h>

#include "one_thread.h"

namespace headroom::pretended_cuda {
namespace golden_test {

const std::string kCases = std::string(HEADROOM_SOURCE_DIR) + "/tests/tools/golden/cases";

class GoldenCases : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(GoldenCases, AllPass) {
  const auto outcomes = golden::run_cases({kCases}, {.dtype = GetParam(), .device = at::kCUDA});
  EXPECT_GE(outcomes.size(), 75U);
  for (const golden::CaseOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.passed) << golden::outcome_line(outcome);
  }
}

// What only the CPU has fused is said to be missing, not to have failed.
TEST(Golden, FusedIsWhatThereIs) {
  const auto outcomes = golden::run_cases({kCases}, {.implementation = Implementation::fused, .device = at::kCUDA});
  const Json all = golden::outcomes_json(outcomes);
  EXPECT_EQ(all.at("failed"), 0) << all;
  EXPECT_GT(all.at("passed"), 0);
  EXPECT_GT(all.at("none_here"), 0);
}

INSTANTIATE_TEST_SUITE_P(Device, GoldenCases, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

}  // namespace golden_test
}  // namespace headroom::pretended_cuda
