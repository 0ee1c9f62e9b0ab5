// Checks the JSON and the tables of the reports.
#include "training/cost/report.h"

#include <cstdlib>

#include "folder_test.h"

namespace headroom::cost::report_test {

class Report : public ::testing::Test {
 protected:
  void SetUp() override { setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1); }
};

TEST_F(Report, PaperRowsSayWhetherTheyAgree) {
  const Json rows = paper_json("switchhead");
  ASSERT_EQ(rows.size(), 50u);
  EXPECT_EQ(rows[4]["printed"], "170.4M");
  EXPECT_EQ(rows[4]["computed"], 170'364'928);
  const std::string text = paper_table("switchhead");
  EXPECT_HAS(text, "50 of 50 derivable figures agree");
  EXPECT_HAS(text, "453,427,200     yes");
}

}  // namespace headroom::cost::report_test
