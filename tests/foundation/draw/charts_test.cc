#include "foundation/draw/charts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <regex>

namespace headroom::draw {
namespace svg_test {

std::vector<double> numbers_after(const std::string& svg, const std::string& pattern) {
  std::vector<double> found;
  const std::regex regex(pattern + "(-?[0-9.]+)");
  for (std::sregex_iterator i(svg.begin(), svg.end(), regex), end; i != end; ++i) {
    found.push_back(std::stod((*i)[1]));
  }
  return found;
}

LineChart chart_of(std::vector<std::vector<Point>> lines) {
  LineChart chart{.title = "t", .x_label = "steps", .lines = {}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    chart.lines.push_back({.name = "run" + std::to_string(i), .points = std::move(lines[i]), .style = i});
  }
  return chart;
}

TEST(Ticks, LinearOnesAreRoundAndInside) {
  EXPECT_EQ(linear_ticks(0, 1000, 5), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(linear_ticks(0, 3, 5), (std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5, 3}));
  EXPECT_FALSE(std::signbit(linear_ticks(0, 1000, 5).front()));
  EXPECT_EQ(linear_ticks(5, 5, 5), std::vector<double>{5});
  EXPECT_LE(linear_ticks(1e17, 1e17 + 64, 5).size(), 11u) << "where 1 more is the same number";
}

TEST(Ticks, LogarithmicOnesSuitTheRange) {
  EXPECT_EQ(logarithmic_ticks(1, 2000), (std::vector<double>{1, 10, 100, 1000}));
  for (const auto& [low, high] :
       {std::pair{7.0, 90.0}, {7.3, 8.2}, {1.01, 1.02}, {120.0, 1e7}, {5.0, 5.3}, {1.0, 1e300}, {1e-310, 1e308}}) {
    const std::vector<double> ticks = logarithmic_ticks(low, high);
    EXPECT_GE(ticks.size(), 3u) << low << ".." << high;
    EXPECT_LE(ticks.size(), 9u) << low << ".." << high;
    EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
    EXPECT_GE(ticks.front(), low);
    EXPECT_LE(ticks.back(), high * (1 + 1e-9));
  }
}

TEST(Ticks, EndAtTheRangeOfDoubles) {
  EXPECT_LE(logarithmic_ticks(1.0, INFINITY).size(), 9u);
  EXPECT_LE(logarithmic_ticks(0.0, 1.0).size(), 9u);
}

TEST(LineChart, EndsStandInTheOrderOfTheirValues) {
  const std::string svg =
      line_chart(chart_of({{{100, 20}, {1000, 8}}, {{100, 21}, {1000, 7.9}}, {{100, 30}, {1000, 12}}}));
  const std::vector<double> labels = numbers_after(svg, "<text class='label s[0-9]' x='[0-9.]+' y='");
  ASSERT_EQ(labels.size(), 3u);
  EXPECT_LT(labels[2], labels[0]) << "12 stands above 8";
  EXPECT_LT(labels[0], labels[1]) << "8 stands above 7.9";
  EXPECT_GE(labels[1] - labels[0], 15.0 - 1e-9) << "labels do not overlap";
}

TEST(LineChart, LabelsOfEqualCurvesAreSpread) {
  std::vector<std::vector<Point>> lines(6, {{10, 5}, {20, 4}});
  std::vector<double> labels = numbers_after(line_chart(chart_of(lines)), "<text class='label s[0-9]' x='[0-9.]+' y='");
  ASSERT_EQ(labels.size(), 6u);
  std::sort(labels.begin(), labels.end());
  for (std::size_t i = 1; i < labels.size(); ++i) {
    EXPECT_GE(labels[i] - labels[i - 1], 15.0 - 0.11);
  }
}

// Labels are in the order of the lines' last values, even if these are close.
TEST(LineChart, LabelsAreAlwaysInTheOrderOfTheEnds) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Point>> lines;
    for (std::size_t n = 2 + random() % 7; n > 0; --n) {
      const double end = 5.0 + 1e-3 * static_cast<double>(random() % 40);
      lines.push_back({{10, 20}, {static_cast<double>(20 + random() % 80), end}});
    }
    const std::string svg = line_chart(chart_of(lines));
    const std::vector<double> labels = numbers_after(svg, "<text class='label s[0-9]' x='[0-9.]+' y='");
    ASSERT_EQ(labels.size(), lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (std::size_t j = 0; j < lines.size(); ++j) {
        EXPECT_FALSE(lines[i][1].y > lines[j][1].y && labels[i] >= labels[j]) << svg;
      }
    }
  }
}

TEST(LineChart, SaysWhereLinesEnd) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}, {{100, 30}, {1000, 12}}});
  chart.end_values = true;
  chart.lines[1].name = "";
  const std::string svg = line_chart(chart);
  EXPECT_NE(svg.find(">run0: 8.00</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">12.00</text>"), std::string::npos) << "without a name the value stands alone";
}

TEST(LineChart, HasDotsOnlyAtMeasurements) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}});
  EXPECT_EQ(numbers_after(line_chart(chart), "r='(?=2.6)").size(), 2u);
  chart.lines[0].dots = false;
  EXPECT_EQ(line_chart(chart).find("class='end"), std::string::npos);
  chart.lines[0] = chart_of({std::vector<Point>(100, {1, 8})}).lines[0];
  EXPECT_EQ(numbers_after(line_chart(chart), "r='(?=2.6)").size(), 0u) << "so many would hide the line";
}

TEST(LineChart, ShowsTheValuesOfAllLinesUnderThePointer) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}, {{1000, 12}}});
  chart.lines[1].faint = true;
  const std::string svg = line_chart(chart);
  EXPECT_NE(svg.find("<title>1.00 k steps\nrun0: 8.00\nrun1: 12.00 (thin line)</title>"), std::string::npos) << svg;
}

TEST(LineChart, ANeutralLineHasNoRunsColour) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}});
  chart.lines[0].style = kNeutral + 2;
  EXPECT_NE(line_chart(chart).find("class='line s2 neutral'"), std::string::npos);
}

TEST(LineChart, ReservesSpaceForItsLabels) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}});
  const auto right = [&] { return numbers_after(line_chart(chart), "<circle class='end s0' cx='").at(0); };
  const double of_short = right();
  chart.lines[0].name = "a_rather_long_name";
  EXPECT_LT(right(), of_short - 50.0);
}

TEST(LineChart, LearningRatesStandOverZero) {
  LineChart chart = chart_of({{{0, 2e-5}, {10, 1e-3}, {100, 4e-4}}});
  chart.y = YScale::from_zero;
  chart.end_values = true;
  const std::string svg = line_chart(chart);
  const std::vector<double> y = numbers_after(svg, "<circle cx='[0-9.]+' cy='");
  ASSERT_EQ(y.size(), 3u);
  EXPECT_GE(y[1], 12.0) << "nothing is cut off";
  EXPECT_NEAR((290.0 - y[2]) / (290.0 - y[1]), 0.4, 0.01) << "linear, from the axis";
  EXPECT_NE(svg.find(">6e-4</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">run0: 4e-4</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">0</text>"), std::string::npos);
}

TEST(LineChart, PointsLieInsideTheDrawing) {
  const std::string svg = line_chart(chart_of({{{0, 5000}, {500, 12}, {1000, 8}}}));
  for (const double x : numbers_after(svg, "<circle cx='")) {
    EXPECT_GE(x, 0.0);
    EXPECT_LE(x, 480.0);
  }
  const std::vector<double> heights = numbers_after(svg, "<circle cx='[0-9.]+' cy='");
  ASSERT_EQ(heights.size(), 3u);
  EXPECT_LT(heights[0], 0.0) << "the steep beginning is above the frame";
  EXPECT_GT(heights[2], heights[1]);
}

TEST(LineChart, LeavesOutValuesThatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::string svg = line_chart(chart_of({{{1, nan}, {2, inf}, {3, 0}, {4, 9}, {5, 8}}}));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(numbers_after(svg, "<circle cx='").size(), 2u);
  EXPECT_NE(line_chart(chart_of({{}, {}})).find("no measurements"), std::string::npos);
  EXPECT_EQ(line_chart(chart_of({{{0, 7}}})).find("nan"), std::string::npos) << "one point, at step 0";
}

TEST(LineChart, ShowsTheWholeBand) {
  LineChart chart = chart_of({{{100, 20}, {1000, 8}}});
  chart.lines[0].band = {{100, 15, 25}, {1000, 4, 12}};
  const std::string svg = line_chart(chart);
  const std::size_t band = svg.find("class='band s0' d='M");
  ASSERT_NE(band, std::string::npos) << svg;
  EXPECT_EQ(svg.find("class='band", band + 1), std::string::npos);
  EXPECT_NE(svg.find(">5</text>"), std::string::npos) << "the axis reaches as low as the band: " << svg;
}

TEST(LineChart, NamesMayReplaceNumbers) {
  LineChart chart = chart_of({{{0, 20}, {1, 8}}});
  chart.x_names = {"cosine", "<linear>"};
  const std::string svg = line_chart(chart);
  EXPECT_NE(svg.find(">cosine</text>"), std::string::npos);
  EXPECT_NE(svg.find(">&lt;linear&gt;</text>"), std::string::npos);
  const std::vector<double> x = numbers_after(svg, "<circle cx='");
  ASSERT_GE(x.size(), 2u);
  EXPECT_GT(x[0], 44.0) << "not on the axis";
}

TEST(LineChart, SharesGoFromZeroToOne) {
  LineChart chart = chart_of({{{10, 0.0}, {20, 1.0}}});
  chart.y = YScale::shares;
  const std::vector<double> y = numbers_after(line_chart(chart), "<circle cx='[0-9.]+' cy='");
  ASSERT_GE(y.size(), 2u);
  EXPECT_EQ(y[0], 290.0);
  EXPECT_EQ(y[1], 12.0);
}

TEST(ScatterChart, NamesItsPoints) {
  const std::string svg = scatter_chart(
      {.title = "t",
       .x_label = "MACs",
       .points = {{"cheap", {1e6, 9.0}, 0}, {"<dear, and far>", {1e9, 7.0}, 1}, {"lost", {1e7, std::nan("")}, 2}}});
  const std::vector<double> x = numbers_after(svg, "<circle class='end s[0-9]' cx='");
  ASSERT_EQ(x.size(), 2u) << "what has no figure has no point";
  EXPECT_LT(x[0], x[1]);
  EXPECT_NE(svg.find(">cheap</text>"), std::string::npos);
  EXPECT_EQ(svg.find("<dear"), std::string::npos);
  EXPECT_NE(svg.find("class='label left s1'"), std::string::npos) << "no room to its right";
  EXPECT_NE(scatter_chart({.title = "t", .x_label = "x", .points = {}}).find("no measurements"), std::string::npos);
}

TEST(ScatterChart, DrawsIntervalsAndLabelsThatTouchNothing) {
  ScatterChart chart{.title = "t", .x_label = "MACs", .points = {}};
  for (std::size_t i = 0; i < 7; ++i) {
    const double y = 48.0 + 0.3 * static_cast<double>(i);
    chart.points.push_back({"switchhead", {1.0e7 * static_cast<double>(1 + i / 2), y}, i});
    chart.points.back().interval = {y - 1.0, y + 1.0};
  }
  const std::string svg = scatter_chart(chart);
  EXPECT_EQ(numbers_after(svg, "<path class='reach s[0-9]' d='M").size(), 7u);
  const std::vector<double> x = numbers_after(svg, "<circle class='end s[0-9]' cx='");
  ASSERT_EQ(x.size(), 7u);
  EXPECT_NEAR(x[1], x[0] + 10.0, 0.11) << "with the same cost, side by side";
  EXPECT_GT(x[2], x[1]);
  const std::regex text("class='label( left| x)? s[0-9]' x='([0-9.]+)' y='([0-9.]+)'");
  std::vector<std::pair<double, double>> labels;  // left end and baseline, 75 units wide
  for (std::sregex_iterator at(svg.begin(), svg.end(), text), end; at != end; ++at) {
    const double shift = (*at)[1] == " left" ? 75.0 : (*at)[1] == " x" ? 37.5 : 0.0;
    labels.emplace_back(std::stod((*at)[2]) - shift, std::stod((*at)[3]));
  }
  ASSERT_EQ(labels.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_GE(labels[i].first, 44.0);
    EXPECT_LE(labels[i].first, 480.0 - 75.0);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(std::abs(labels[i].first - labels[j].first) >= 74.9 ||
                  std::abs(labels[i].second - labels[j].second) >= 13.9)
          << i << " " << j;
    }
  }
  chart.points[0].interval = {-1.0, 50.0};
  EXPECT_EQ(numbers_after(scatter_chart(chart), "<path class='reach s[0-9]' d='M").size(), 6u)
      << "no end below 0 on a logarithmic axis";
}

TEST(ScatterChart, DrawsLinesAndTheGapBetweenThem) {
  ScatterChart chart{.title = "t", .x_label = "x", .points = {{"a", {1e3, 9.0}, 0}, {"b", {1e6, 7.0}, 1}}};
  EXPECT_EQ(scatter_chart(chart).find("class='line"), std::string::npos);
  chart.lines = {{{1e3, 9.0}, {1e6, 8.0}, 0}, {{1e3, 8.0}, {1e6, 7.0}, 1}, {{1e3, 8.0}, {1e6, std::nan("")}, 2}};
  chart.gaps = {{{1e3, 8.0}, {1e8, 8.0}, "<times>", 1}};
  const std::string svg = scatter_chart(chart);
  EXPECT_NE(svg.find("class='line s1'"), std::string::npos);
  EXPECT_EQ(svg.find("class='line s2'"), std::string::npos) << "what has no end has no line";
  EXPECT_NE(svg.find("&lt;times&gt;</text>"), std::string::npos);
  const std::vector<double> x = numbers_after(svg, "<circle class='end s[0-9]' cx='");
  const std::vector<double> gap = numbers_after(svg, "<path class='reach s1' d='M");
  ASSERT_EQ(gap.size(), 3u) << "the gap and its two ends";
  EXPECT_NEAR(gap[0], x[0], 0.11);
  EXPECT_NEAR(gap[1], x[0], 0.11);
  EXPECT_GT(gap[2], x[1]) << "beyond the points";
  EXPECT_LT(gap[2], 480.0) << "and still within the drawing";
  chart.points[0].label = "";
  chart.points[1].label = "other";
  const std::string labelled = scatter_chart(chart);
  EXPECT_EQ(labelled.find(">a</text>"), std::string::npos);
  EXPECT_NE(labelled.find("<title>a: "), std::string::npos) << "its name is still there";
  EXPECT_NE(labelled.find(">other</text>"), std::string::npos);
}

TEST(IntervalChart, ShowsZeroAndWhereIntervalsLie) {
  const std::string svg = interval_chart(
      {.title = "t", .rows = {{"a", -2, -3, -1, "-2", 1}, {"b", 0.5, -1, 2, "0.5", 2}, {"<c>", 0, 0, 0, "0", 3}}});
  const std::vector<double> means = numbers_after(svg, "<circle class='end s[0-9]' cx='");
  ASSERT_EQ(means.size(), 3u);
  EXPECT_LT(means[0], means[2]);
  EXPECT_LT(means[2], means[1]);
  const std::vector<double> zero = numbers_after(svg, "<path class='axis' d='M");
  ASSERT_EQ(zero.size(), 1u);
  EXPECT_NEAR(zero[0], means[2], 0.11);
  EXPECT_EQ(svg.find("<c>"), std::string::npos);
  EXPECT_EQ(interval_chart({.title = "t", .rows = {{"a", 0, 0, 0, "0", 0}}}).find("nan"), std::string::npos);
}

TEST(ScatterChart, TicksAreRound) {
  const std::string svg =
      scatter_chart({.title = "t", .x_label = "x", .points = {{"a", {1.0e7, 5.0}, 0}, {"b", {2.2e7, 5.5}, 1}}});
  EXPECT_NE(svg.find(">20 M</text>"), std::string::npos) << svg;
  EXPECT_EQ(svg.find(".0 M</text>"), std::string::npos) << svg;
}

TEST(Standalone, BringsItsStyleSheetAndTitles) {
  const LineChart chart = chart_of({{{100, 20}, {1000, 8}}});
  const std::string file = standalone({chart, chart});
  EXPECT_TRUE(file.starts_with("<svg xmlns='http://www.w3.org/2000/svg'"));
  EXPECT_NE(file.find("<style>"), std::string::npos);
  std::size_t titles = 0;
  for (std::size_t at = file.find("class='title'"); at != std::string::npos; at = file.find("class='title'", at + 1)) {
    ++titles;
  }
  EXPECT_EQ(titles, 2u);
}

TEST(SmallBar, IsProportionalToItsValue) {
  const auto widths = [](double share) { return numbers_after(small_bar(share, 9), "width='"); };
  EXPECT_EQ(widths(0.25), (std::vector<double>{100, 25}));
  EXPECT_EQ(widths(0.0), (std::vector<double>{100, 0}));
  EXPECT_EQ(widths(1.5), (std::vector<double>{100, 100})) << "never beyond its cell";
  EXPECT_EQ(widths(std::nan("")), (std::vector<double>{100, 0}));
  EXPECT_NE(small_bar(0.5, 9).find("class='bar s1'"), std::string::npos) << "in the run's colour";
}

TEST(Charts, NamesAreEscaped) {
  LineChart chart = chart_of({{{1, 2}, {2, 1}}});
  chart.lines[0].name = chart.title = chart.x_label = "<script>'\"";
  const std::string svg =
      line_chart(chart) +
      interval_chart({.title = "<x>", .rows = {{.name = "<y>", .mean = 1, .low = 0, .high = 2, .text = "<z>"}}});
  for (const char* raw : {"<script", "<x>", "<y>", "<z>"}) {
    EXPECT_EQ(svg.find(raw), std::string::npos) << raw;
  }
}

}  // namespace svg_test
}  // namespace headroom::draw
