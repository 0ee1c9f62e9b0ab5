#include "engine/nn/attention/position_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace position_table_test {

std::int64_t made = 0;

at::Tensor make(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table) {
  ++made;
  return sinusoids(first, n, table.width, table.base, at::kDouble).unsqueeze(0);
}

TEST(PositionTable, GivesTheRowsThatWereAskedForInAnyOrder) {
  const PositionTable table{make, 5, 100.0};
  for (const auto& [first, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {2, 1}, {-4, 5}, {-9, 2}, {1, 40}, {-70, 100}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const bool traced : {false, true}) {
        const at::Tensor rows = rows_of(table, first, n, type, traced);
        EXPECT_TRUE(rows.equal(sinusoids(first, n, 5, 100.0, at::kDouble).unsqueeze(0).to(type))) << first << " " << n;
      }
    }
  }
  EXPECT_FALSE(rows_of({make, 5, 10.0}, 0, 3, at::kDouble, false).equal(rows_of(table, 0, 3, at::kDouble, false)));
}

TEST(PositionTable, IsRebuiltRarelyAsASequenceGrows) {
  const PositionTable table{make, 7, 100.0};
  made = 0;
  rows_of(table, -99, 100, at::kFloat, false);
  for (int layer = 0; layer < 3; ++layer) {
    rows_of(table, -99, 100, at::kFloat, false);
    rows_of(table, -49, 50, at::kFloat, false);
  }
  EXPECT_EQ(made, 1);
  for (std::int64_t n = 101; n < 400; ++n) {
    rows_of(table, -99, n, at::kFloat, false);
  }
  EXPECT_EQ(made, 3);
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

}  // namespace position_table_test
}  // namespace headroom::nn
