// Named points.
#include <algorithm>
#include <cmath>
#include <limits>

#include "drawing.h"
#include "headroom/draw/charts.h"
#include "headroom/draw/text.h"
#include "scale.h"

namespace headroom::draw {
namespace {

constexpr double kPlotLeft = 44.0, kPlotTop = 12.0, kPlotBottom = 40.0, kPlotRight = 20.0;
constexpr double kLabelWidth = 7.5;  // of a character, about

std::vector<double> ticks_of(const Scale& scale) {
  return logarithmic_ticks(scale.first(), scale.last());
}

// "12 M" rather than "12.0 M".
std::string round_number(double tick) {
  std::string text = short_number(tick);
  const std::size_t digits = std::min(text.find(' '), text.size());
  if (text.find('.') < digits) {
    const std::size_t end = text.find_last_not_of('0', digits - 1);
    text.erase(text[end] == '.' ? end : end + 1, digits - (text[end] == '.' ? end : end + 1));
  }
  return text;
}

void include(Scale& scale, double value) {
  scale.low = std::min(scale.low, std::log(value));
  scale.high = std::max(scale.high, std::log(value));
}

std::string scatter_axes(const Scale& x, const Scale& y, const std::string& x_label) {
  std::string drawing;
  const double base = kChartHeight - kPlotBottom;
  for (const double tick : ticks_of(y)) {
    drawing += element("path", {{"class", "grid"}, {"d", horizontal(kPlotLeft, y(tick), kWidth - kPlotRight)}});
    drawing += text_at("y", kPlotLeft - 6, y(tick) + 4, tick_text(tick));
  }
  drawing += element("path", {{"class", "axis"}, {"d", horizontal(kPlotLeft, base, kWidth - kPlotRight)}});
  for (const double tick : ticks_of(x)) {
    drawing += element("path", {{"class", "axis"}, {"d", vertical(x(tick), base, base + 4)}});
    drawing += text_at("x", x(tick), base + 17, round_number(tick));
  }
  return drawing + text_at("x", (kPlotLeft + kWidth - kPlotRight) / 2, kChartHeight - 5, escape(x_label));
}

}  // namespace

std::string scatter_chart(const ScatterChart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Scale x{kInfinity, -kInfinity, kPlotLeft, kWidth - kPlotRight, /*logarithmic=*/true},
      y{kInfinity, -kInfinity, kChartHeight - kPlotBottom, kPlotTop, /*logarithmic=*/true};
  std::vector<ScatterPoint> points;
  for (const ScatterPoint& point : chart.points) {
    if (std::isfinite(point.at.x) && std::isfinite(point.at.y) && point.at.x > 0.0 && point.at.y > 0.0) {
      include(x, point.at.x);
      include(y, point.at.y);
      points.push_back(point);
    }
  }
  if (points.empty()) {
    return chart_of(kChartHeight, chart.title, text_at("x", kWidth / 2, kChartHeight / 2, "nothing was measured"));
  }
  x.widen(0.12, 0.01);
  y.widen(0.12, 0.01);
  std::vector<double> heights;
  heights.reserve(points.size());
  for (const ScatterPoint& point : points) {
    heights.push_back(y(point.at.y));
  }
  spread_labels(heights, kChartHeight - kPlotBottom);
  std::string drawing = scatter_axes(x, y, chart.x_label);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const ScatterPoint& point = points[i];
    const Point at{x(point.at.x), y(point.at.y)};
    const std::string name = shorten(point.name, 2 * kNameRoom);
    // To the right of its point, or to the left where there is no room.
    const bool left = at.x + 10 + kLabelWidth * static_cast<double>(name.size()) > kWidth;
    const std::string title = escape(point.name + ": " + plain_number(point.at.y) + " at " + short_number(point.at.x));
    drawing += element("circle", {{"class", style_class("end", point.style)}, {"cx", at.x}, {"cy", at.y}, {"r", "5"}},
                       element("title", {}, title));
    drawing += text_at(style_class(left ? "label left" : "label", point.style), at.x + (left ? -9 : 9), heights[i] + 4,
                       escape(name));
  }
  return chart_of(kChartHeight, chart.title, drawing);
}

}  // namespace headroom::draw
