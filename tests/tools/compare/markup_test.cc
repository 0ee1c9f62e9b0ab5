#include "tools/compare/report/markup.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::compare {
namespace markup_test {

TEST(Markup, ShortensByCharactersNotBytes) {
  EXPECT_EQ(shorten("dense_h8", 8), "dense_h8");
  EXPECT_EQ(shorten("a_long_name_h8", 8), "a_lo\xe2\x80\xa6_h8");
  EXPECT_EQ(shorten("äöüßäöüß", 8), "äöüßäöüß");
  EXPECT_EQ(shorten("äöüßäöüßx", 4), "äö\xe2\x80\xa6x");
  EXPECT_EQ(shorten("abc", 1), "\xe2\x80\xa6");
}

TEST(Markup, NumbersKeepThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(512), "512");
  EXPECT_EQ(short_number(999.7), "1.00 k");
  EXPECT_EQ(short_number(762880), "763 k");
  EXPECT_EQ(short_number(2695764), "2.70 M");
  EXPECT_EQ(short_number(453427200), "453 M");
  EXPECT_EQ(short_number(5368709120), "5.37 G");
  EXPECT_EQ(short_number(std::nan("")), "not finite");
  EXPECT_EQ(plain_number(0.95312), "0.9531");
  EXPECT_EQ(plain_number(1.0), "1.00");
  EXPECT_EQ(plain_number(7.3749), "7.37");
  EXPECT_EQ(plain_number(23.14), "23.14");
  EXPECT_EQ(plain_number(9.996), "10.00");
  EXPECT_EQ(plain_number(120.2), "120.2");
  EXPECT_EQ(plain_number(999.96), "1,000");
  EXPECT_EQ(plain_number(1203.7), "1,204");
  EXPECT_EQ(plain_number(1234567), "1,234,567");
  EXPECT_EQ(plain_number(-1234), "-1,234");
  EXPECT_EQ(plain_number(INFINITY), "not finite");
  EXPECT_EQ(plain_number(1e300), "1e+300");
  EXPECT_EQ(ratio_text(0.37641), "0.376x");
}

TEST(Markup, SpreadsKeepTwoDigits) {
  EXPECT_EQ(with_deviation(7.3749, std::nan("")), "7.37");
  EXPECT_EQ(with_deviation(7.3749, 0.0), "7.37");
  EXPECT_EQ(with_deviation(7.3749, 0.052), "7.375 \u00b1 0.052");
  EXPECT_EQ(with_deviation(1204.2, 31.0), "1204 \u00b1 31");
  EXPECT_EQ(with_deviation(std::nan(""), 1.0), "not finite");
  EXPECT_EQ(interval_text({-0.2144, -0.3, -0.1288}), "-0.214 [-0.300, -0.129]");
  EXPECT_EQ(interval_text({12, 2, 22}), "12 [2, 22]");
  EXPECT_EQ(interval_text({-0.04, -20, 19.9}), "0 [-20, 20]");
  EXPECT_EQ(plain_number(-0.00001), "0.0000");
  EXPECT_EQ(short_number(-0.0), "0");
}

TEST(Markup, ListsRead) {
  EXPECT_EQ(enumerated({}), "");
  EXPECT_EQ(enumerated({"a"}), "a");
  EXPECT_EQ(enumerated({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(counted(1, "run"), "1 run");
  EXPECT_EQ(counted(2, "run"), "2 runs");
}

}  // namespace markup_test
}  // namespace headroom::compare
