#include "foundation/core/text/text_table.h"

#include <gtest/gtest.h>

namespace headroom {
namespace text_table_test {

TEST(TextTable, ColumnsAreAsWideAsTheirLongestCell) {
  EXPECT_EQ(text_table({{"model", "loss", "", "x"}, {"é", "12.5", "taken", ""}}, {true, false, true}),
            "model  loss         x\n"
            "é      12.5  taken\n");
}

TEST(TextTable, OneColumnOfBlanksIsEmptyLines) {
  EXPECT_EQ(text_table({{""}, {" "}}, {}), "\n\n");
}

}  // namespace text_table_test
}  // namespace headroom
