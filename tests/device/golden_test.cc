// Every reference case on the pretended device.
#include "headroom/golden/golden.h"

#include <gtest/gtest.h>

#include "one_thread.h"

namespace headroom::pretended_cuda {
namespace golden_test {

const std::string kCases = std::string(HEADROOM_SOURCE_DIR) + "/tests/golden/cases";

class Golden : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Golden, AllCasesPass) {
  const auto outcomes = golden::run_cases({kCases}, {.dtype = GetParam(), .device = at::kCUDA});
  EXPECT_EQ(outcomes.size(), 75U);
  for (const golden::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.passed) << golden::outcome_line(outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(Device, Golden, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& test) { return std::string(at::toString(test.param)); });

}  // namespace golden_test
}  // namespace headroom::pretended_cuda
