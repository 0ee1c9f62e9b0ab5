#include "foundation/core/text/letters.h"

#include <gtest/gtest.h>

namespace headroom {
namespace letters_test {

TEST(LowerCase, IsOfAsciiAlone) {
  EXPECT_EQ(lower_case('Q'), 'q');
  EXPECT_EQ(lower_case("A Z@[`{ a.JPEG 0"), "a z@[`{ a.jpeg 0");
  EXPECT_EQ(lower_case("\xc3\x84"), "\xc3\x84");
  EXPECT_EQ(lower_case(""), "");
}

}  // namespace letters_test
}  // namespace headroom
