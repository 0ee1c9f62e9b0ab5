// Tests that the first of several maxima is found, with every instruction set of this CPU.
#include "engine/kernels/cpu/row_maximum.h"

#include <cmath>
#include <limits>

#include "kernel_testing.h"

namespace headroom::kernels {
namespace row_maximum_test {

TEST(RowMaximum, IsTheFirstOfTheGreatest) {
  testing::on_every_target([] {
    for (const std::int64_t n : testing::kSizes) {
      for (std::int64_t place = 0; place < n; ++place) {
        std::vector<float> row(static_cast<std::size_t>(n), -3.0F);
        row[static_cast<std::size_t>(place)] = row.back() = -2.0F;  // ties with the last element
        const RowMaximum found = row_maximum(row.data(), n);
        EXPECT_TRUE(found.finite);
        EXPECT_EQ(found.index, place) << n;
      }
    }
  });
}

TEST(RowMaximum, FindsElementsThatAreNotFinite) {
  testing::on_every_target([] {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t n : testing::kSizes) {
        for (const std::int64_t place : {std::int64_t{0}, n / 2, n - 1}) {
          std::vector<float> row(static_cast<std::size_t>(n), 1.0F);
          row[static_cast<std::size_t>(place)] = value;
          EXPECT_FALSE(row_maximum(row.data(), n).finite) << n << ", " << place;
        }
      }
    }
  });
}

}  // namespace row_maximum_test
}  // namespace headroom::kernels
