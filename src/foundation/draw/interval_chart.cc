// Means with intervals, and the small drawings in tables and legends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts.h"
#include "svg.h"

namespace headroom::draw {

std::string interval_chart(const IntervalChart& chart) {
  constexpr double kRow = 44.0, kNames = 124.0, kAxis = 24.0;
  double low = 0.0, high = 0.0;
  for (const IntervalRow& row : chart.rows) {
    low = std::min(low, row.low);
    high = std::max(high, row.high);
  }
  const double pad = high > low ? 0.08 * (high - low) : 1.0;
  const double height = kRow * static_cast<double>(chart.rows.size()), right = kWidth - 8.0;
  const auto x = [&](double value) { return kNames + (value - low + pad) / (high - low + 2 * pad) * (right - kNames); };
  std::string drawing;
  for (const double tick : linear_ticks(low - pad, high + pad, 4)) {
    drawing += element("path", {{"class", tick == 0.0 ? "axis" : "grid"}, {"d", vertical(x(tick), 0.0, height)}});
    drawing += text_at("x", x(tick), height + 16, tick_text(tick));
  }
  double y = kRow / 2.0;
  for (const IntervalRow& row : chart.rows) {
    drawing += text_at("y", kNames - 8, y + 4,
                       escape(shorten(row.name, kNameRoom)) + element("title", {}, escape(row.name + ": " + row.text)));
    drawing += element("path", {{"class", style_class("reach", row.style)},
                                {"d", horizontal(x(row.low), y, x(row.high)) + vertical(x(row.low), y - 5, y + 5) +
                                          vertical(x(row.high), y - 5, y + 5)}});
    drawing +=
        element("circle", {{"class", style_class("end", row.style)}, {"cx", x(row.mean)}, {"cy", y}, {"r", "4.5"}});
    y += kRow;
  }
  return chart_of(height + kAxis, chart.title, drawing);
}

std::string small_bar(double share, std::size_t style) {
  constexpr double kLength = 100.0, kHeight = 6.0;
  const double length = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) * kLength : 0.0;
  const auto bar = [](const std::string& kind, double width) {
    return element("rect", {{"class", kind}, {"width", width}, {"height", kHeight}});
  };
  return element("svg",
                 {{"class", "small-bar"},
                  {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", kLength, kHeight)},
                  {"preserveAspectRatio", "none"},
                  {"aria-hidden", "true"}},
                 bar("ground", kLength) + bar(style_class("bar", style), length));
}

std::string line_sample(std::size_t style) {
  return element("svg", {{"class", "sample"}, {"viewBox", "0 0 30 10"}, {"aria-hidden", "true"}},
                 element("path", {{"class", style_class("line", style)}, {"d", "M1 5H29"}}));
}

}  // namespace headroom::draw
