#include "engine/nn/attention/position_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "headroom/nn/attention_parts.h"

namespace headroom::nn::position_table_test {

at::Tensor make(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table) {
  return sinusoids(first, n, table.width, table.base, at::kDouble).unsqueeze(0);
}

TEST(PositionTable, ThreadsShareIt) {
  const PositionTable table{make, 9, 100.0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t n = 1; n < 50; ++n) {
        EXPECT_EQ(rows_of(table, -n * t, n, at::kFloat, false).size(1), n);
      }
    });
  }
}

}  // namespace headroom::nn::position_table_test
