#include "bench/log_plot.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::bench {
namespace log_plot_test {

TEST(LogPlot, FindsTheExponentOfAPowerLaw) {
  Growth line{.name = "square", .x = {}, .y = {}};
  for (const double x : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    line.x.push_back(x);
    line.y.push_back(x < 3.0 ? 48.0 : 3.0 * x * x);  // flat, then a square
  }
  EXPECT_NEAR(slope(line, 3), 2.0, 1e-12);
  EXPECT_LT(slope(line), 1.9);
}

TEST(LogPlot, DrawsEveryPointInsideTheFrame) {
  const LogPlot plot{"Time", "T", "ms", {{"one", {256, 8192}, {0.5, 700.0}}, {"two", {256, 512}, {3.0, 4.0}}}};
  const std::string svg = draw({plot, plot});
  std::size_t circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
    ++circles;
    const double x = std::stod(svg.substr(svg.find("cx='", at) + 4)),
                 y = std::stod(svg.substr(svg.find("cy='", at) + 4));
    EXPECT_TRUE(x >= 0.0 && x <= 520.0 && y >= 0.0 && y <= 360.0) << x << ", " << y;
  }
  EXPECT_EQ(circles, 8);
  EXPECT_NE(svg.find(">8192<"), std::string::npos);
  EXPECT_EQ(draw({{"Flat", "E", "ms", {{"one", {2}, {5.0}}}}}).find("nan"), std::string::npos);
}

}  // namespace log_plot_test
}  // namespace headroom::bench
