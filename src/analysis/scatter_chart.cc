// Named points.
#include <algorithm>
#include <cmath>
#include <limits>

#include "drawing.h"
#include "headroom/core/svg.h"
#include "markup.h"
#include "svg.h"

namespace headroom::analysis {
namespace {

using svg::element;

constexpr double kPlotHeight = 330.0, kPlotLeft = 44.0, kPlotTop = 12.0, kPlotBottom = 40.0, kPlotRight = 20.0;
constexpr double kLabelWidth = 7.5;  // of a character, about

// The logarithms' range with some room around it.
struct LogScale {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  double from = 0.0, to = 1.0;
  void add(double value) {
    low = std::min(low, std::log(value));
    high = std::max(high, std::log(value));
  }
  void widen(double share) {
    const double room = std::max(share * (high - low), 0.01);
    low -= room;
    high += room;
  }
  double operator()(double value) const { return from + (std::log(value) - low) / (high - low) * (to - from); }
  std::vector<double> ticks() const { return logarithmic_ticks(std::exp(low), std::exp(high)); }
};

std::string scatter_axes(const LogScale& x, const LogScale& y, const std::string& x_label) {
  std::string drawing;
  const double base = kPlotHeight - kPlotBottom;
  for (const double tick : y.ticks()) {
    drawing += element("path", {{"class", "grid"}, {"d", svg::horizontal(kPlotLeft, y(tick), kWidth - kPlotRight)}});
    drawing += text_at("y", kPlotLeft - 6, y(tick) + 4, tick_text(tick));
  }
  drawing += element("path", {{"class", "axis"}, {"d", svg::horizontal(kPlotLeft, base, kWidth - kPlotRight)}});
  for (const double tick : x.ticks()) {
    drawing += element("path", {{"class", "axis"}, {"d", svg::vertical(x(tick), base, base + 4)}});
    drawing += text_at("x", x(tick), base + 17, short_number(tick));
  }
  return drawing + text_at("x", (kPlotLeft + kWidth - kPlotRight) / 2, kPlotHeight - 5, escape(x_label));
}

}  // namespace

std::string scatter_chart(const ScatterChart& chart) {
  LogScale x{.from = kPlotLeft, .to = kWidth - kPlotRight}, y{.from = kPlotHeight - kPlotBottom, .to = kPlotTop};
  std::vector<ScatterPoint> points;
  for (const ScatterPoint& point : chart.points) {
    if (std::isfinite(point.at.x) && std::isfinite(point.at.y) && point.at.x > 0.0 && point.at.y > 0.0) {
      x.add(point.at.x);
      y.add(point.at.y);
      points.push_back(point);
    }
  }
  if (points.empty()) {
    return chart_of(kPlotHeight, chart.title, text_at("x", kWidth / 2, kPlotHeight / 2, "nothing was measured"));
  }
  x.widen(0.12);
  y.widen(0.12);
  std::vector<double> heights;
  for (const ScatterPoint& point : points) {
    heights.push_back(y(point.at.y));
  }
  spread_labels(heights, kPlotHeight - kPlotBottom);
  std::string drawing = scatter_axes(x, y, chart.x_label);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const ScatterPoint& point = points[i];
    const svg::Point at{x(point.at.x), y(point.at.y)};
    const std::string name = shorten(point.name, 2 * kLabelRoom);
    // To the right of its point, or to the left where there is no room.
    const bool left = at.x + 10 + kLabelWidth * static_cast<double>(name.size()) > kWidth;
    const std::string title = escape(point.name + ": " + plain_number(point.at.y) + " at " + short_number(point.at.x));
    drawing += element("circle", {{"class", style_class("end", point.style)}, {"cx", at.x}, {"cy", at.y}, {"r", "5"}},
                       element("title", {}, title));
    drawing += text_at(style_class(left ? "label left" : "label", point.style), at.x + (left ? -9 : 9), heights[i] + 4,
                       escape(name));
  }
  return chart_of(kPlotHeight, chart.title, drawing);
}

}  // namespace headroom::analysis
