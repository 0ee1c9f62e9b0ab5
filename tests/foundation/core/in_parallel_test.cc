#include "foundation/core/machine/in_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {
namespace in_parallel_test {

TEST(InParallel, EachPieceOnce) {
  for (const std::size_t threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> done(40);
    in_parallel(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const auto& n) { return n == 1; })) << threads;
    in_parallel(0, threads, [](std::size_t) { FAIL(); });
  }
}

TEST(InParallel, TheFirstErrorWithAnyThreads) {
  for (const std::size_t threads : {1, 2, 8}) {
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> begun = 0;
      try {
        in_parallel(1000, threads, [&](std::size_t i) {
          ++begun;
          if (i >= 17) {
            fail("{}", i);
          }
        });
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "17");
      }
      EXPECT_LT(begun, 100) << "the rest is not begun";
    }
  }
}

}  // namespace in_parallel_test
}  // namespace headroom
