#include "foundation/draw/page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "headroom/core/error.h"

namespace headroom::draw::page_test {

std::string page_with(const std::string& text) {
  return block_page({{"title", text}, {"header", Json::array()}, {"blocks", Json::array({{{"note", text}}})}});
}

TEST(Page, NeedsNoNetwork) {
  const std::string html = page_with("text");
  for (const char* part : {"https:", "src=", "@import", "fetch("}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Charts, NumbersAreShortAndFinite) {
  EXPECT_EQ(numbers({1.0, 1.0 / 3.0, NAN}).dump(), "[1.0,0.333333,null]");
}

std::string shades_of(const Cells& cells, const Shade& shade) {
  return block_of(HeatMap{.cells = cells, .shade = shade}).at("cells").at("shades");
}

TEST(HeatMap, ShadesAreSharesOfTheFullOne) {
  const auto packed = [](std::string_view bytes) { return to_base64(deflated(bytes)); };
  EXPECT_EQ(shades_of({1, 4, {0.0F, 1.0F, -2.0F, 9.0F}}, {.full = 2.0}), packed({"\0\x40\x81\x7f", 4}));
  EXPECT_EQ(shades_of({1, 2, {0.25F, -0.25F}}, {.full = 1.0, .power = 0.5}), packed("\x40\xc0"));
  EXPECT_EQ(shades_of({1, 2, {NAN, std::numeric_limits<float>::infinity()}}, {}), packed({"\0\0", 2}));
  EXPECT_THROW(shades_of({2, 2, {1.0F}}, {}), Error);
}

TEST(HeatMap, LargeOnesKeepTheirLargestCells) {
  Cells cells{.rows = 2, .columns = 2 * kMostShades, .values = {}};
  cells.values.assign(cells.rows * cells.columns, 0.0F);
  cells.values[3] = -1.0F;
  const Json merged = block_of(HeatMap{.cells = cells}).at("cells");
  EXPECT_EQ(merged.at("rows"), 2);
  EXPECT_EQ(merged.at("columns"), kMostShades);
  std::string expected(2 * kMostShades, '\0');
  expected[1] = '\x81';
  EXPECT_EQ(merged.at("shades"), to_base64(deflated(expected)));
}

}  // namespace headroom::draw::page_test
