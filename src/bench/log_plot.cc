#include "log_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "headroom/core/svg.h"

namespace headroom::bench {
namespace {

using svg::element;

constexpr double kWidth = 520.0, kHeight = 360.0, kLeft = 66.0, kRight = 132.0, kTop = 34.0, kBottom = 46.0;
// Distinguishable without colour vision (Okabe and Ito).
constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d00"};

struct Axis {
  double low, high, from, to;  // values, and where they are drawn
  double at(double value) const {
    return from + (std::log(value) - std::log(low)) / (std::log(high) - std::log(low)) * (to - from);
  }
};

Axis axis_over(const std::vector<Growth>& lines, const std::vector<double> Growth::*values, double from, double to) {
  double low = INFINITY, high = 0.0;
  for (const Growth& line : lines) {
    for (const double value : line.*values) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return high > low ? Axis{low, high, from, to} : Axis{high * 0.5 + 1e-9, high * 2.0 + 1e-9, from, to};
}

std::vector<double> powers(const Axis& axis, double base) {
  std::vector<double> ticks;
  for (double tick = std::pow(base, std::ceil(std::log(axis.low) / std::log(base) - 1e-9)); tick <= axis.high * 1.0001;
       tick *= base) {
    ticks.push_back(tick);
  }
  return ticks;
}

std::string text(double x, double y, const char* anchor, const std::string& words, const char* weight = "normal") {
  return element("text", {{"x", x}, {"y", y}, {"text-anchor", anchor}, {"font-weight", weight}}, escape(words)) + "\n";
}

std::string grid(const LogPlot& plot, const Axis& x, const Axis& y) {
  constexpr const char* kFaint = "#ddd";
  std::string drawing;
  for (const double tick : powers(x, 2.0)) {
    drawing += element("path", {{"d", svg::vertical(x.at(tick), y.to, y.from)}, {"stroke", kFaint}}) + "\n";
    drawing += text(x.at(tick), y.from + 16.0, "middle", fmt::format("{:.4g}", tick));
  }
  for (const double tick : powers(y, 10.0)) {
    drawing += element("path", {{"d", svg::horizontal(x.from, y.at(tick), x.to)}, {"stroke", kFaint}}) + "\n";
    drawing += text(x.from - 6.0, y.at(tick) + 4.0, "end", fmt::format("{:.4g}", tick));
  }
  drawing += text((x.from + x.to) / 2.0, y.from + 36.0, "middle", plot.x_label);
  drawing += text(x.from, kTop - 16.0, "start", plot.title + ", " + plot.y_label, "bold");
  return drawing;
}

// The names at the lines' ends, moved apart.
std::string labels(const LogPlot& plot, const Axis& y) {
  std::vector<std::pair<double, std::size_t>> ends;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    ends.emplace_back(y.at(plot.lines[i].y.back()), i);
  }
  std::sort(ends.begin(), ends.end());
  std::string drawing;
  double last = -INFINITY;
  for (const auto& [wanted, i] : ends) {
    last = std::max(wanted + 4.0, last + 14.0);
    drawing += element("g", {{"fill", kColours[i % kColours.size()]}},
                       text(kWidth - kRight + 8.0, last, "start", plot.lines[i].name));
  }
  return drawing;
}

std::string draw_one(const LogPlot& plot) {
  const Axis x = axis_over(plot.lines, &Growth::x, kLeft, kWidth - kRight),
             y = axis_over(plot.lines, &Growth::y, kHeight - kBottom, kTop);
  std::string drawing = grid(plot, x, y);
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Growth& line = plot.lines[i];
    const char* colour = kColours[i % kColours.size()];
    std::vector<svg::Point> points;
    std::string dots;
    for (std::size_t k = 0; k < line.x.size(); ++k) {
      const svg::Point& at = points.emplace_back(svg::Point{x.at(line.x[k]), y.at(line.y[k])});
      dots += element("circle", {{"cx", at.x}, {"cy", at.y}, {"r", "3"}});
    }
    drawing += element("path",
                       {{"d", svg::line_through(points)}, {"fill", "none"}, {"stroke", colour}, {"stroke-width", "2"}});
    drawing += element("g", {{"fill", colour}}, dots) + "\n";
  }
  return drawing + labels(plot, y);
}

}  // namespace

std::string draw(const std::vector<LogPlot>& plots) {
  const std::string width = fmt::format("{}", kWidth * static_cast<double>(plots.size())),
                    height = fmt::format("{}", kHeight);
  std::string drawing = element("rect", {{"width", width}, {"height", height}, {"fill", "#fff"}}) + "\n";
  for (std::size_t i = 0; i < plots.size(); ++i) {
    const std::string place = fmt::format("translate({} 0)", kWidth * static_cast<double>(i));
    drawing += element("g", {{"transform", place}}, draw_one(plots[i])) + "\n";
  }
  return element("svg",
                 {{"xmlns", "http://www.w3.org/2000/svg"},
                  {"viewBox", fmt::format("0 0 {} {}", width, height)},
                  {"width", width},
                  {"height", height},
                  {"font-family", "sans-serif"},
                  {"font-size", "12"}},
                 drawing) +
         "\n";
}

double slope(const Growth& line, std::size_t points) {
  const std::size_t n = line.x.size(), first = points == 0 || points > n ? 0 : n - points;
  double x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
  for (std::size_t i = first; i < n; ++i) {
    const double u = std::log(line.x[i]), v = std::log(line.y[i]);
    x += u;
    y += v;
    xx += u * u;
    xy += u * v;
  }
  const auto count = static_cast<double>(n - first);
  return (count * xy - x * y) / (count * xx - x * x);
}

}  // namespace headroom::bench
