// Curves over a shared x axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "charts.h"
#include "foundation/core/text/utf8.h"
#include "svg.h"

namespace headroom::draw {
namespace {

constexpr double kLeft = 44.0, kTop = 12.0, kBottom = 40.0;
constexpr double kSteepPart = 0.1;  // fraction of the x range that may be cut off at the top

struct Frame {
  Scale x, y;
  double right() const { return x.to; }
};

std::vector<Point> drawable(const Line& line, const LineChart& chart) {
  std::vector<Point> points;
  for (const Point& point : line.points) {
    const bool has_logarithm = chart.y != YScale::logarithmic || point.y > 0.0;
    if (std::isfinite(point.x) && std::isfinite(point.y) && has_logarithm) {
      points.push_back(point);
    }
  }
  return points;
}

std::vector<Spread> drawable_band(const Line& line, bool logarithmic) {
  std::vector<Spread> band;
  for (const Spread& at : line.band) {
    if (std::isfinite(at.x) && std::isfinite(at.high) && (!logarithmic || at.low > 0.0)) {
      band.push_back(at);
    }
  }
  return band;
}

// The range of the lines and their bands. On a logarithmic scale, `high` excludes the steep start of a curve.
struct Reach {
  double right = 0.0;
  double low = std::numeric_limits<double>::infinity(), high = 0.0;
};

Reach reach_of(const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  Reach reach;
  const bool whole = !chart.x_names.empty() || chart.y != YScale::logarithmic;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double end = lines[i].empty() ? 0.0 : lines[i].back().x;
    const auto add = [&](double x, double least, double most) {
      reach.low = std::min(reach.low, least);
      reach.high = whole || x >= kSteepPart * end ? std::max(reach.high, most) : reach.high;
    };
    reach.right = std::max(reach.right, end);
    for (const Point& point : lines[i]) {
      add(point.x, point.y, point.y);
    }
    for (const Spread& at : drawable_band(chart.lines[i], chart.y == YScale::logarithmic)) {
      add(at.x, at.low, at.high);
    }
  }
  return reach;
}

// Formats a value; on a linear scale, with three significant digits.
std::string value_text(const LineChart& chart, double value) {
  if (chart.y != YScale::from_zero || value == 0.0) {
    return plain_number(value);
  }
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 2.0);
  return tick_text(std::round(value / unit) * unit);
}

// Returns the label of a line whose last value is `value`.
std::string end_label(const LineChart& chart, const Line& line, double value) {
  const std::string name = shorten(line.name, chart.name_room);
  return !chart.end_values ? name : (name.empty() ? "" : name + ": ") + value_text(chart, value);
}

// Returns the x coordinate of the plot's right end, which leaves room for the longest label.
double end_of_x(const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  constexpr double kCharacter = 7.8, kLeader = 14.0;  // approximate widths
  std::size_t longest = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].empty() && !chart.lines[i].faint) {
      longest = std::max(longest, count_characters(end_label(chart, chart.lines[i], lines[i].back().y)));
    }
  }
  return kWidth - kLeader - kCharacter * static_cast<double>(longest);
}

Scale x_scale(const LineChart& chart, const Reach& reach, double to) {
  if (!chart.x_names.empty()) {
    constexpr double kMargin = 0.35;  // as a fraction of the distance between two names
    return {-kMargin, static_cast<double>(chart.x_names.size()) - 1.0 + kMargin, kLeft, to};
  }
  return {0.0, reach.right > 0.0 ? reach.right : 1.0, kLeft, to};
}

Frame frame_around(const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  const Reach reach = reach_of(chart, lines);
  Frame frame{x_scale(chart, reach, end_of_x(chart, lines)), {0.0, 1.0, kChartHeight - kBottom, kTop}};
  if (chart.y == YScale::from_zero && reach.high > 0.0) {
    frame.y.high = 1.06 * reach.high;
  }
  if (chart.y == YScale::logarithmic) {
    frame.y = {std::log(reach.low), std::log(reach.high), kChartHeight - kBottom, kTop, /*logarithmic=*/true};
    frame.y.widen(0.06, 0.01);
  }
  return frame;
}

std::string axes(const Frame& frame, const LineChart& chart) {
  std::string drawing;
  for (const double tick : frame.y.logarithmic ? logarithmic_ticks(frame.y.first(), frame.y.last())
                                               : linear_ticks(frame.y.low, frame.y.high, 5)) {
    const double y = frame.y(tick);
    drawing += element("path", {{"class", "grid"}, {"d", horizontal(kLeft, y, frame.right())}});
    drawing += text_at("y", kLeft - 6, y + 4, tick_text(tick));
  }
  const double base = kChartHeight - kBottom;
  drawing += element("path", {{"class", "axis"}, {"d", horizontal(kLeft, base, frame.right())}});
  const auto mark = [&](double x, const std::string& name) {
    drawing += element("path", {{"class", "axis"}, {"d", vertical(frame.x(x), base, base + 4)}});
    drawing += text_at("x", frame.x(x), base + 17, name);
  };
  for (std::size_t i = 0; i < chart.x_names.size(); ++i) {
    mark(static_cast<double>(i), escape(shorten(chart.x_names[i], kNameRoom)));
  }
  if (chart.x_names.empty()) {
    for (const double tick : linear_ticks(0.0, frame.x.high, 5)) {
      mark(tick, tick_text(tick));
    }
  }
  return drawing + text_at("x", (kLeft + frame.right()) / 2, kChartHeight - 5, escape(chart.x_label));
}

// Returns the outline of a line's band: along its upper edge, and back along its lower edge.
std::string band_of(const Frame& frame, const Line& line) {
  const std::vector<Spread> band = drawable_band(line, frame.y.logarithmic);
  std::vector<Point> outline;
  outline.reserve(2 * band.size());
  for (const Spread& at : band) {
    outline.push_back({frame.x(at.x), frame.y(at.high)});
  }
  for (auto at = band.rbegin(); at != band.rend(); ++at) {
    outline.push_back({frame.x(at->x), frame.y(at->low)});
  }
  return band.size() < 2
             ? ""
             : element("path", {{"class", style_class("band", line.style)}, {"d", line_through(outline) + "Z"}});
}

std::string curve(const Frame& frame, const LineChart& chart, const Line& line, const std::vector<Point>& points) {
  std::vector<Point> drawn;
  std::string dots;
  constexpr std::size_t kMostDots = 60;  // more would hide the line
  const bool shown = line.dots && points.size() <= kMostDots;
  for (const Point& point : points) {
    const Point& at = drawn.emplace_back(Point{frame.x(point.x), frame.y(point.y)});
    if (line.faint) {
      continue;
    }
    const std::string title = fmt::format("{}{}{} at {}", escape(line.name), line.name.empty() ? "" : ": ",
                                          value_text(chart, point.y), short_number(point.x));
    dots += element("circle", {{"cx", at.x}, {"cy", at.y}, {"r", shown ? "2.6" : "6"}}, element("title", {}, title));
  }
  return band_of(frame, line) +
         element("path", {{"class", style_class(line.raw     ? "raw"
                                                : line.faint ? "faint"
                                                             : "line",
                                                line.style)},
                          {"d", line_through(drawn)}}) +
         element("g", {{"class", style_class(shown ? "end" : "hover", line.style)}}, dots);
}

// Returns an invisible strip for each x of the lines, with their values there as its title: what a pointer shows.
std::string pointer_values(const Frame& frame, const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  std::map<double, std::string> titles;  // by x
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = chart.lines[i];
    for (const Point& point : line.raw ? std::vector<Point>() : lines[i]) {
      titles[point.x] += fmt::format("\n{}{}{}{}", escape(line.name), line.name.empty() ? "" : ": ",
                                     value_text(chart, point.y), line.faint ? " (thin line)" : "");
    }
  }
  std::string strips;
  double left = kLeft;
  for (auto at = titles.begin(); at != titles.end(); ++at) {
    const auto next = std::next(at);
    const double right = next == titles.end() ? frame.right() : frame.x((at->first + next->first) / 2.0);
    const std::string x = chart.x_names.empty() ? fmt::format("{} {}", short_number(at->first), chart.x_label)
                                                : chart.x_names[static_cast<std::size_t>(at->first)];
    strips += element("rect",
                      {{"class", "strip"},
                       {"x", left},
                       {"y", kTop},
                       {"width", std::max(0.0, right - left)},
                       {"height", kChartHeight - kBottom - kTop}},
                      element("title", {}, escape(x) + at->second));
    left = right;
  }
  return strips;
}

std::string direct_labels(const Frame& frame, const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  std::vector<std::size_t> which;
  std::vector<double> heights;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].empty() && !chart.lines[i].faint) {
      which.push_back(i);
      heights.push_back(frame.y(lines[i].back().y));
    }
  }
  spread_labels(heights, kChartHeight - kBottom);
  std::string drawing;
  for (std::size_t n = 0; n < which.size(); ++n) {
    const Line& line = chart.lines[which[n]];
    const Point& end = lines[which[n]].back();
    const double x = frame.right();
    const Point at{frame.x(end.x), frame.y(end.y)};
    drawing += element("path", {{"class", style_class("leader", line.style)},
                                {"d", line_through({at, {x, at.y}, {x + 9, heights[n]}})}});
    if (line.dots) {
      drawing +=
          element("circle", {{"class", style_class("end", line.style)}, {"cx", at.x}, {"cy", at.y}, {"r", "3.5"}});
    }
    drawing += text_at(style_class("label", line.style), x + 12, heights[n] + 4, escape(end_label(chart, line, end.y)));
  }
  return drawing;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(high - low)) {
    return {low};
  }
  const double raw = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double mantissa = raw / power;
  const double step = power * (mantissa < 1.5 ? 1.0 : mantissa < 3.5 ? 2.0 : mantissa < 7.5 ? 5.0 : 10.0);
  const double slack = 1e-9 * step;
  const double first = std::ceil((low - slack) / step);
  for (int i = 0; i <= 2 * wanted && (first + i) * step <= high + slack; ++i) {
    ticks.push_back((first + i) * step + 0.0);  // + 0.0 turns -0.0 into 0.0
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high) {
  constexpr double kMost = 8.0;
  const std::vector<std::vector<double>> choices = {{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7}};
  low = std::max(low, std::numeric_limits<double>::min());
  high = std::min(high, std::numeric_limits<double>::max());
  const double stride = std::max(1.0, std::ceil((std::log10(high) - std::log10(low)) / kMost));
  for (const auto& mantissas : choices) {
    std::vector<double> ticks;
    for (double power = std::floor(std::log10(low)); power <= std::log10(high); power += stride) {
      for (const double mantissa : mantissas) {
        const double tick = mantissa * std::pow(10.0, power);
        if (tick >= low && tick <= high) {
          ticks.push_back(tick);
        }
      }
    }
    if (ticks.size() >= 4) {
      return ticks;
    }
  }
  return linear_ticks(low, high, 4);
}

std::string line_chart(const LineChart& chart) {
  std::vector<std::vector<Point>> lines;
  bool empty = true;
  for (const Line& line : chart.lines) {
    lines.push_back(drawable(line, chart));
    empty = empty && lines.back().empty();
  }
  if (empty) {
    return chart_of(kChartHeight, chart.title, text_at("x", kWidth / 2, kChartHeight / 2, "no measurements"));
  }
  const Frame frame = frame_around(chart, lines);
  std::string curves = pointer_values(frame, chart, lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    curves += curve(frame, chart, chart.lines[i], lines[i]);
  }
  // A nested viewport clips the curves at the top. It extends beyond the frame's sides by half the width of a dot.
  constexpr double kSide = 7.0;
  const double left = kLeft - kSide, width = frame.right() - left + kSide, height = kChartHeight - kBottom - kTop;
  const std::string inside = element("svg",
                                     {{"x", left},
                                      {"y", kTop},
                                      {"width", width},
                                      {"height", height},
                                      {"viewBox", fmt::format("{} {} {} {}", left, kTop, width, height)}},
                                     curves);
  return chart_of(kChartHeight, chart.title, axes(frame, chart) + inside + direct_labels(frame, chart, lines));
}

}  // namespace headroom::draw
