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
constexpr double kRadius = 5.0;      // of a point

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

struct Area {
  double left, top, right, bottom;
  bool meets(const Area& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// A point in the drawing. `low` and `high` are the ends of its interval, or the point itself.
struct Mark {
  const ScatterPoint* point;
  double x, y, low, high;
  Area area() const { return {x - kRadius, std::min(y - kRadius, high), x + kRadius, std::max(y + kRadius, low)}; }
};

// Returns the points in the drawing; a mark is moved to the right of those that it would hide.
std::vector<Mark> marks_of(const Scale& x, const Scale& y, const std::vector<ScatterPoint>& points) {
  std::vector<Mark> marks;
  for (const ScatterPoint& point : points) {
    const double at = y(point.at.y);
    Mark mark{&point, x(point.at.x), at, at, at};
    if (point.interval) {
      mark.low = y(point.interval->low);
      mark.high = y(point.interval->high);
    }
    for (const Mark& other : marks) {
      if (std::abs(other.x - mark.x) < 1.0 && mark.area().meets(other.area())) {
        mark.x += 2 * kRadius;
      }
    }
    marks.push_back(mark);
  }
  return marks;
}

// Draws a label beside, above or below its mark, as near as it can be without meeting anything in `taken`.
std::string placed_label(const Mark& mark, std::vector<Area>& taken) {
  constexpr double kGap = 4.0, kAscent = 10.0, kDescent = 4.0, kStep = 5.0, kNear = 10.0;
  const std::string label = label_of(*mark.point);
  const double width = kLabelWidth * static_cast<double>(label.size());
  const Area of_mark = mark.area();
  struct Place {
    const char* kind;
    double x, baseline, left, away;
    Area text(double wide) const { return {left, baseline - kAscent, left + wide, baseline + kDescent}; }
  };
  std::vector<Place> places;
  for (double away = 0.0; away < kChartHeight; away += kStep) {
    for (const double baseline : {mark.y + kDescent - away, mark.y + kDescent + away}) {
      const double right = of_mark.right + kGap, left = of_mark.left - kGap;
      places.push_back({"label", right, baseline, right, away});
      places.push_back({"label left", left, baseline, left - width, away});
    }
    for (const double baseline : {of_mark.top - kDescent - 1 - away, of_mark.bottom + kAscent + 1 + away}) {
      places.push_back({"label x", mark.x, baseline, mark.x - width / 2, away});
    }
  }
  const auto found = std::ranges::find_if(places, [&](const Place& place) {
    const Area text = place.text(width);
    return text.left >= kPlotLeft && text.right <= kWidth && text.top >= 0.0 &&
           text.bottom <= kChartHeight - kPlotBottom &&
           std::ranges::none_of(taken, [&](const Area& other) { return text.meets(other); });
  });
  const Place& place = found == places.end() ? places.front() : *found;
  const Area text = place.text(width);
  taken.push_back(text);
  std::string drawing;
  if (place.away > kNear) {  // a dotted line to the mark
    drawing = element("path", {{"class", style_class("leader", mark.point->style)},
                               {"d", line_through({{mark.x, std::clamp(text.top, of_mark.top, of_mark.bottom)},
                                                   {std::clamp(mark.x, text.left, text.right),
                                                    std::clamp(mark.y, text.top, text.bottom)}})}});
  }
  return drawing + text_at(style_class(place.kind, mark.point->style), place.x, place.baseline, escape(label));
}

// Draws the points with their intervals, and their labels without overlap.
std::string named_points(const std::vector<Mark>& marks) {
  std::string drawing;
  std::vector<Area> taken;
  for (const Mark& mark : marks) {
    const ScatterPoint& point = *mark.point;
    if (point.interval) {
      drawing +=
          element("path", {{"class", style_class("reach", point.style)},
                           {"d", vertical(mark.x, mark.low, mark.high) + horizontal(mark.x - 4, mark.low, mark.x + 4) +
                                     horizontal(mark.x - 4, mark.high, mark.x + 4)}});
    }
    const std::string title = escape(point.name + ": " + plain_number(point.at.y) + " at " + short_number(point.at.x));
    drawing +=
        element("circle", {{"class", style_class("end", point.style)}, {"cx", mark.x}, {"cy", mark.y}, {"r", kRadius}},
                element("title", {}, title));
    taken.push_back(mark.area());
  }
  for (const Mark& mark : marks) {
    if (!label_of(*mark.point).empty()) {
      drawing += placed_label(mark, taken);
    }
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
      if (std::optional<Interval>& interval = points.back().interval) {
        if (can_be_drawn({point.at.x, interval->low}) && can_be_drawn({point.at.x, interval->high})) {
          include(y, interval->low);
          include(y, interval->high);
        } else {
          interval.reset();
        }
      }
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
  return chart_of(
      kChartHeight, chart.title,
      scatter_axes(x, y, chart.x_label) + lines_and_gaps(x, y, chart) + named_points(marks_of(x, y, points)));
}

}  // namespace headroom::draw
