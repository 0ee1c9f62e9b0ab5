#include "foundation/draw/charts.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <regex>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::draw {
namespace heat_map_test {

// The shades in a PNG of grey_png().
std::vector<unsigned char> shades_of(const std::string& png, std::size_t width, std::size_t height) {
  const std::size_t data = png.find("IDAT") + 4, end = png.find("IEND") - 8;
  std::vector<unsigned char> lines((width + 1) * height);
  uLongf size = lines.size();
  EXPECT_EQ(uncompress(lines.data(), &size, reinterpret_cast<const Bytef*>(png.data()) + data, end - data), Z_OK);
  EXPECT_EQ(size, lines.size());
  std::vector<unsigned char> shades;
  for (std::size_t y = 0; y < height; ++y) {
    EXPECT_EQ(lines[y * (width + 1)], 0) << "no filter";
    shades.insert(shades.end(), lines.begin() + static_cast<std::ptrdiff_t>(y * (width + 1) + 1),
                  lines.begin() + static_cast<std::ptrdiff_t>((y + 1) * (width + 1)));
  }
  return shades;
}

TEST(HeatMap, TheImageContainsItsShades) {
  const std::vector<unsigned char> shades = {0, 50, 100, 150, 200, 255};
  const std::string png = grey_png(3, 2, shades);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(12, 4), "IHDR");
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\0\x03\0\0\0\x02", 8));
  EXPECT_EQ(shades_of(png, 3, 2), shades);
  EXPECT_THROW(grey_png(3, 3, shades), Error);
  EXPECT_THROW(grey_png(0, 0, {}), Error);
}

std::vector<std::string> pictures_in(const std::string& svg) {
  std::vector<std::string> found;
  const std::regex regex("base64,([A-Za-z0-9+/=]+)");
  for (std::sregex_iterator i(svg.begin(), svg.end(), regex), end; i != end; ++i) {
    found.push_back((*i)[1]);
  }
  return found;
}

// Opaque at `full` and transparent at 0; negative values are a separate image in another colour.
TEST(HeatMap, ShadesAreSharesOfTheFullOne) {
  const HeatMap map{.title = "t", .cells = {2, 2, {0.0F, 1.0F, 4.0F, -2.0F}}, .shade = {.full = 2.0}};
  const std::string svg = heat_map(map);
  const std::vector<std::string> pictures = pictures_in(svg);
  ASSERT_EQ(pictures.size(), 2U);
  EXPECT_EQ(pictures[0], to_base64(grey_png(2, 2, {0, 128, 255, 0})));
  EXPECT_EQ(pictures[1], to_base64(grey_png(2, 2, {0, 0, 0, 255})));
  EXPECT_NE(svg.find("class='heat below'"), std::string::npos);
  EXPECT_NE(svg.find("full: 2"), std::string::npos);
}

TEST(HeatMap, ShadesFollowAPower) {
  const HeatMap map{.title = "t", .cells = {2, 2, {0.0F, 0.5F, 4.0F, -0.5F}}, .shade = {.full = 2.0, .power = 0.5}};
  const std::vector<std::string> pictures = pictures_in(heat_map(map));
  ASSERT_EQ(pictures.size(), 2U);
  EXPECT_EQ(pictures[0], to_base64(grey_png(2, 2, {0, 128, 255, 0})));
  EXPECT_EQ(pictures[1], to_base64(grey_png(2, 2, {0, 0, 0, 128})));
}

TEST(HeatMap, LargeOnesKeepTheirLargestCells) {
  HeatMap map{.title = "t", .cells = {2 * kMostShades, 2 * kMostShades, {}}};
  map.cells.values.assign(map.cells.rows * map.cells.columns, 0.0F);
  map.cells.values[map.cells.columns + 1] = 1.0F;  // within the first four
  const std::vector<std::string> pictures = pictures_in(heat_map(map));
  ASSERT_EQ(pictures.size(), 1U);
  std::vector<unsigned char> shades(kMostShades * kMostShades, 0);
  shades[0] = 255;
  EXPECT_EQ(pictures[0], to_base64(grey_png(kMostShades, kMostShades, shades)));
}

TEST(HeatMap, HasItsPanelsNamesAndLabels) {
  HeatMap map{.title = "a & b", .cells = {2, 3, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F}}};
  map.row_names = {"<one>", "two"};
  map.column_names = {"x", "y", "z"};
  map.left = Cells{2, 1, {1.0F, 0.0F}};
  map.below = Cells{4, 3, std::vector<float>(12, 0.5F)};
  const std::string svg = heat_map(map);
  EXPECT_EQ(pictures_in(svg).size(), 3U);
  EXPECT_NE(svg.find("&lt;one&gt;"), std::string::npos);
  EXPECT_NE(svg.find("aria-label='a &amp; b'"), std::string::npos);
  map.left->columns = 2;
  EXPECT_THROW(heat_map(map), Error);
}

TEST(HeatMap, FewColumnsOfNamedRowsAreNotStretched) {
  HeatMap map{.title = "layers and heads", .cells = {4, 2, std::vector<float>(8, 0.5F)}};
  map.row_names = {"layer0", "layer1", "layer2", "layer3"};
  const std::string svg = heat_map(map), begins = "viewBox='0 0 480 ";
  const std::size_t at = svg.find(begins);
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::stoi(svg.substr(at + begins.size())), 240);
}

TEST(HeatMap, NonFiniteValuesHaveNoShade) {
  const HeatMap map{.title = "t", .cells = {1, 2, {NAN, 0.0F}}, .shade = {.full = 0.0}};
  EXPECT_TRUE(pictures_in(heat_map(map)).empty());
}

}  // namespace heat_map_test
}  // namespace headroom::draw
