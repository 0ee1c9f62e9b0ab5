// Benchmarks of operators on the pretended device: what has no fused version there has a line that says so.
#include "tools/bench/bench.h"

#include <gtest/gtest.h>

#include "one_thread.h"
#include "tools/bench/timing.h"

namespace headroom::pretended_cuda {
namespace bench_test {

TEST(Bench, WhatIsMissingHasNoTime) {
  const std::vector<double> times = bench::medians_in_turn({[] {}, {}}, {.repeats = 3, .device = "cuda:0"});
  EXPECT_GE(times[0], 0.0);
  const bench::Row row{.name = "a: fused", .seconds = times[1]};
  EXPECT_TRUE(row.none_here());
  EXPECT_NE(bench::to_table({row}).find("none here"), std::string::npos);
  EXPECT_TRUE(bench::to_json({row})[0].at("seconds").is_null());
}

}  // namespace bench_test
}  // namespace headroom::pretended_cuda
