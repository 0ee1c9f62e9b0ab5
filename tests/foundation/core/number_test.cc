#include "foundation/core/text/number.h"

#include <gtest/gtest.h>

namespace headroom {
namespace number_test {

TEST(Numbers, AreTheTextAsAWhole) {
  EXPECT_EQ(as_number("0.1"), 0.1);
  EXPECT_EQ(as_number("-3"), -3.0);
  EXPECT_EQ(as_number("1e-4"), 1e-4);
  EXPECT_EQ(as_number<int>("-7"), -7);
  for (const char* text : {"", " 1", "1 ", "+1", "1,5", "0x10", "1e999", "one"}) {
    EXPECT_EQ(as_number(text), std::nullopt) << text;
  }
  EXPECT_EQ(as_number<int>("1.0"), std::nullopt);
  EXPECT_EQ(as_number<int>("2147483648"), std::nullopt) << "one more than there are";
}

TEST(Numbers, OfCountsAreWholeAndNotNegative) {
  EXPECT_EQ(whole_number("0"), 0);
  EXPECT_EQ(whole_number("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-1", "9223372036854775808", "1.5", "12abc"}) {
    EXPECT_EQ(whole_number(text), std::nullopt) << text;
  }
}

}  // namespace number_test
}  // namespace headroom
