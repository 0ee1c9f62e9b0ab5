// Curves over a common axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "drawing.h"
#include "headroom/core/svg.h"
#include "markup.h"
#include "svg.h"

namespace headroom::analysis {
namespace {

using svg::element;

constexpr double kHeight = 330.0;
constexpr double kLeft = 44.0, kRight = 112.0, kTop = 12.0, kBottom = 40.0;
constexpr double kSteepPart = 0.1;  // of x, may be cut off at the top

struct Scale {
  double low, high, from, to;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

struct Frame {
  Scale x, scaled_y;
  bool linear = false;
  double y(double value) const { return scaled_y(linear ? value : std::log(value)); }
};

std::vector<Point> drawable(const Line& line, bool linear) {
  std::vector<Point> points;
  for (const Point& point : line.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y) && (linear || point.y > 0.0)) {
      points.push_back(point);
    }
  }
  return points;
}

std::vector<Spread> drawable_band(const Line& line, bool linear) {
  std::vector<Spread> band;
  for (const Spread& at : line.band) {
    if (std::isfinite(at.x) && std::isfinite(at.high) && (linear || at.low > 0.0)) {
      band.push_back(at);
    }
  }
  return band;
}

Frame frame_around(const LineChart& chart, const std::vector<std::vector<Point>>& lines) {
  double right = 0.0, low = std::numeric_limits<double>::infinity(), high = 0.0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double end = lines[i].empty() ? 0.0 : lines[i].back().x;
    const auto add = [&](double x, double least, double most) {
      low = std::min(low, least);
      high = !chart.x_names.empty() || x >= kSteepPart * end ? std::max(high, most) : high;
    };
    right = std::max(right, end);
    for (const Point& point : lines[i]) {
      add(point.x, point.y, point.y);
    }
    for (const Spread& at : drawable_band(chart.lines[i], chart.linear)) {
      add(at.x, at.low, at.high);
    }
  }
  Scale x{0.0, right > 0.0 ? right : 1.0, kLeft, kWidth - kRight};
  if (!chart.x_names.empty()) {
    constexpr double kMargin = 0.35;  // of the distance between two names
    x.low = -kMargin;
    x.high = static_cast<double>(chart.x_names.size()) - 1.0 + kMargin;
  }
  if (chart.linear) {
    return {.x = x, .scaled_y = {0.0, 1.0, kHeight - kBottom, kTop}, .linear = true};
  }
  const double pad = std::max(0.06 * std::log(high / low), 0.01);
  return {.x = x, .scaled_y = {std::log(low) - pad, std::log(high) + pad, kHeight - kBottom, kTop}};
}

std::string axes(const Frame& frame, const LineChart& chart) {
  std::string drawing;
  const Scale& scale = frame.scaled_y;
  for (const double tick : frame.linear ? linear_ticks(scale.low, scale.high, 5)
                                        : logarithmic_ticks(std::exp(scale.low), std::exp(scale.high))) {
    const double y = frame.y(tick);
    drawing += element("path", {{"class", "grid"}, {"d", svg::horizontal(kLeft, y, kWidth - kRight)}});
    drawing += text_at("y", kLeft - 6, y + 4, tick_text(tick));
  }
  const double base = kHeight - kBottom;
  drawing += element("path", {{"class", "axis"}, {"d", svg::horizontal(kLeft, base, kWidth - kRight)}});
  const auto mark = [&](double x, const std::string& name) {
    drawing += element("path", {{"class", "axis"}, {"d", svg::vertical(frame.x(x), base, base + 4)}});
    drawing += text_at("x", frame.x(x), base + 17, name);
  };
  for (std::size_t i = 0; i < chart.x_names.size(); ++i) {
    mark(static_cast<double>(i), escape(shorten(chart.x_names[i], kLabelRoom)));
  }
  for (const double tick : chart.x_names.empty() ? linear_ticks(0.0, frame.x.high, 5) : std::vector<double>()) {
    mark(tick, tick_text(tick));
  }
  return drawing + text_at("x", (kLeft + kWidth - kRight) / 2, kHeight - 5, escape(chart.x_label));
}

// The outline of a line's band: along its upper edge and back along the lower.
std::string band_of(const Frame& frame, const Line& line) {
  const std::vector<Spread> band = drawable_band(line, frame.linear);
  std::vector<svg::Point> outline;
  for (const Spread& at : band) {
    outline.push_back({frame.x(at.x), frame.y(at.high)});
  }
  for (auto at = band.rbegin(); at != band.rend(); ++at) {
    outline.push_back({frame.x(at->x), frame.y(at->low)});
  }
  return band.size() < 2
             ? ""
             : element("path", {{"class", style_class("band", line.style)}, {"d", svg::line_through(outline) + "Z"}});
}

std::string curve(const Frame& frame, const Line& line, const std::vector<Point>& points) {
  std::vector<svg::Point> drawn;
  std::string dots;
  for (const Point& point : points) {
    const svg::Point& at = drawn.emplace_back(svg::Point{frame.x(point.x), frame.y(point.y)});
    if (line.faint) {
      continue;
    }
    const std::string title =
        fmt::format("{}: {} at {}", escape(line.name), plain_number(point.y), short_number(point.x));
    dots += element("circle", {{"cx", at.x}, {"cy", at.y}, {"r", "6"}}, element("title", {}, title));
  }
  return band_of(frame, line) +
         element("path",
                 {{"class", style_class(line.faint ? "faint" : "line", line.style)}, {"d", svg::line_through(drawn)}}) +
         element("g", {{"class", style_class("hover", line.style)}}, dots);
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
  spread_labels(heights, kHeight - kBottom);
  std::string drawing;
  for (std::size_t n = 0; n < which.size(); ++n) {
    const Line& line = chart.lines[which[n]];
    const Point& end = lines[which[n]].back();
    const double x = kWidth - kRight;
    const svg::Point at{frame.x(end.x), frame.y(end.y)};
    drawing += element("path", {{"class", style_class("leader", line.style)},
                                {"d", svg::line_through({at, {x, at.y}, {x + 9, heights[n]}})}});
    drawing += element("circle", {{"class", style_class("end", line.style)}, {"cx", at.x}, {"cy", at.y}, {"r", "3.5"}});
    drawing +=
        text_at(style_class("label", line.style), x + 12, heights[n] + 4, escape(shorten(line.name, kLabelRoom)));
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
  for (int i = 0; i <= 2 * wanted && (first + i) * step <= high + slack;
       ++i) {                                   // counted: large numbers do not grow by 1
    ticks.push_back((first + i) * step + 0.0);  // no negative zero
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high) {
  constexpr double kMost = 8.0;
  const std::vector<std::vector<double>> kMantissas = {{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7}};
  low = std::max(low, std::numeric_limits<double>::min());
  high = std::min(high, std::numeric_limits<double>::max());
  const double stride = std::max(1.0, std::ceil((std::log10(high) - std::log10(low)) / kMost));
  for (const auto& mantissas : kMantissas) {
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
    lines.push_back(drawable(line, chart.linear));
    empty = empty && lines.back().empty();
  }
  if (empty) {
    return chart_of(kHeight, chart.title, text_at("x", kWidth / 2, kHeight / 2, "nothing was measured"));
  }
  const Frame frame = frame_around(chart, lines);
  std::string curves;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    curves += curve(frame, chart.lines[i], lines[i]);
  }
  // A nested viewport cuts off what lies above the frame.
  const double width = kWidth - kLeft - kRight, height = kHeight - kBottom - kTop;
  const std::string inside = element("svg",
                                     {{"x", kLeft},
                                      {"y", kTop},
                                      {"width", width},
                                      {"height", height},
                                      {"viewBox", fmt::format("{} {} {} {}", kLeft, kTop, width, height)}},
                                     curves);
  return chart_of(kHeight, chart.title, axes(frame, chart) + inside + direct_labels(frame, chart, lines));
}

}  // namespace headroom::analysis
