// Labelled points, lines and gaps.
#include <algorithm>
#include <cmath>
#include <limits>

#include "charts.h"
#include "svg.h"

namespace headroom::draw {
namespace {

constexpr double kPlotLeft = 44.0, kPlotTop = 12.0, kPlotBottom = 40.0, kPlotRight = 20.0;
constexpr double kLabelWidth = 7.5;  // approximate width of a character

std::vector<double> ticks_of(const Scale& scale) {
  return logarithmic_ticks(scale.first(), scale.last());
}

// Formats a round number: "12 M" instead of "12.0 M".
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

bool can_be_drawn(const Point& at) {
  return std::isfinite(at.x) && std::isfinite(at.y) && at.x > 0.0 && at.y > 0.0;
}

// Draws the lines, and the gaps between lines with marked ends and a label on the right.
std::string lines_and_gaps(const Scale& x, const Scale& y, const ScatterChart& chart) {
  std::string drawing;
  for (const ScatterLine& line : chart.lines) {
    if (can_be_drawn(line.from) && can_be_drawn(line.to)) {
      drawing +=
          element("path", {{"class", style_class("line", line.style)},
                           {"d", line_through({{x(line.from.x), y(line.from.y)}, {x(line.to.x), y(line.to.y)}})}});
    }
  }
  for (const ScatterGap& gap : chart.gaps) {
    if (!can_be_drawn(gap.from) || !can_be_drawn(gap.to)) {
      continue;
    }
    constexpr double kMark = 4.0;  // half the height of a mark
    const double from = x(gap.from.x), to = x(gap.to.x), at = y(gap.from.y);
    drawing += element("path", {{"class", style_class("reach", gap.style)}, {"d", horizontal(from, at, to)}});
    for (const double end : {from, to}) {
      drawing +=
          element("path", {{"class", style_class("reach", gap.style)}, {"d", vertical(end, at - kMark, at + kMark)}});
    }
    // The label is above the line, which may continue to the right.
    drawing += text_at("value", std::max(from, to) + 2 * kMark, at - kMark, escape(gap.text));
  }
  return drawing;
}

std::string label_of(const ScatterPoint& point) {
  return shorten(point.label.value_or(point.name), 2 * kNameRoom);
}

// Draws the points, and their labels without overlap.
std::string named_points(const Scale& x, const Scale& y, const std::vector<ScatterPoint>& points) {
  std::string drawing;
  std::vector<const ScatterPoint*> labelled;
  std::vector<double> heights;
  for (const ScatterPoint& point : points) {
    const std::string title = escape(point.name + ": " + plain_number(point.at.y) + " at " + short_number(point.at.x));
    drawing +=
        element("circle",
                {{"class", style_class("end", point.style)}, {"cx", x(point.at.x)}, {"cy", y(point.at.y)}, {"r", "5"}},
                element("title", {}, title));
    if (!label_of(point).empty()) {
      labelled.push_back(&point);
      heights.push_back(y(point.at.y));
    }
  }
  spread_labels(heights, kChartHeight - kPlotBottom);
  for (std::size_t i = 0; i < labelled.size(); ++i) {
    const std::string label = label_of(*labelled[i]);
    const double at = x(labelled[i]->at.x);
    // The label is right of the point, or left of it if there is no space.
    const bool left = at + 10 + kLabelWidth * static_cast<double>(label.size()) > kWidth;
    drawing += text_at(style_class(left ? "label left" : "label", labelled[i]->style), at + (left ? -9 : 9),
                       heights[i] + 4, escape(label));
  }
  return drawing;
}

}  // namespace

std::string scatter_chart(const ScatterChart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Scale x{kInfinity, -kInfinity, kPlotLeft, kWidth - kPlotRight, /*logarithmic=*/true},
      y{kInfinity, -kInfinity, kChartHeight - kPlotBottom, kPlotTop, /*logarithmic=*/true};
  std::vector<ScatterPoint> points;
  for (const ScatterPoint& point : chart.points) {
    if (can_be_drawn(point.at)) {
      include(x, point.at.x);
      include(y, point.at.y);
      points.push_back(point);
    }
  }
  for (const ScatterGap& gap : chart.gaps) {  // gaps from extrapolated lines may end outside the range of the points
    for (const Point& end : {gap.from, gap.to}) {
      if (!points.empty() && can_be_drawn(end)) {
        include(x, end.x);
        include(y, end.y);
      }
    }
  }
  if (points.empty()) {
    return chart_of(kChartHeight, chart.title, text_at("x", kWidth / 2, kChartHeight / 2, "no measurements"));
  }
  x.widen(0.12, 0.01);
  y.widen(0.12, 0.01);
  return chart_of(kChartHeight, chart.title,
                  scatter_axes(x, y, chart.x_label) + lines_and_gaps(x, y, chart) + named_points(x, y, points));
}

}  // namespace headroom::draw
