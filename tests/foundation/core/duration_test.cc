#include "foundation/core/text/duration.h"

#include <gtest/gtest.h>

#include <string>

#include "headroom/core/error.h"

namespace headroom {
namespace duration_test {

TEST(Duration, ReadsNumbersWithAUnit) {
  EXPECT_EQ(parse_duration("90s", "x"), 90.0);
  EXPECT_EQ(parse_duration("30m", "x"), 1800.0);
  EXPECT_EQ(parse_duration("2h", "x"), 7200.0);
  EXPECT_EQ(parse_duration("1d", "x"), 86400.0);
  EXPECT_EQ(parse_duration("1.5h", "x"), 5400.0);
  EXPECT_EQ(parse_duration("1000d", "x"), 86400000.0);
}

TEST(Duration, RefusesEverythingElse) {
  for (const char* text : {"", "s", "2", "2 h", "h2", "2hours", "2h30m", "-2h", "0s", "nan", "infs", "1001d", "1e999d",
                           "0x10s", "2H", " 2h", "2h ", "1e3s"}) {
    try {
      parse_duration(text, "advise: --budget");
      FAIL() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("advise: --budget: must be a time"), 0u) << error.what();
      EXPECT_NE(std::string(error.what()).find(std::string("\"") + text + "\""), std::string::npos) << error.what();
    }
  }
}

}  // namespace duration_test
}  // namespace headroom
