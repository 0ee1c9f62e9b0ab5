// Charts as inline SVG without scripts. Colours and line styles come from the page's style sheet (page.h), so that
// charts follow its light and dark schemes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "svg.h"

namespace headroom::draw {

// Number of styles. A run has the same colour and line style in all charts: number `style % kStyles`.
inline constexpr std::size_t kStyles = 8;

// Maximum characters of a label; longer ones are shortened.
inline constexpr std::size_t kNameRoom = 14;

struct Spread {
  double x = 0.0, low = 0.0, high = 0.0;
};

struct Line {
  std::string name;
  std::vector<Point> points;  // x ascending
  std::vector<Spread> band;   // shaded around the line; x ascending, or empty
  std::size_t style = 0;
  bool faint = false;  // thin and without a label: accompanies another line
};

enum class YScale {
  logarithmic,  // for perplexity, whose logarithm is the loss
  from_zero,    // linear, from 0 to the largest value
  shares,       // linear, from 0 to 1
};

struct LineChart {
  std::string title, x_label;
  std::vector<Line> lines;
  YScale y = YScale::logarithmic;
  bool end_values = false;            // appends the last value to a line's label
  bool logarithmic_x = false;         // x above 0, ticks at powers of two
  std::size_t name_room = kNameRoom;  // maximum characters of a line's label
  std::vector<std::string> x_names;   // names shown at x = 0, 1, ... instead of numbers
};

struct ScatterPoint {
  std::string name;
  Point at;
  std::size_t style = 0;
  std::optional<std::string> label = {};  // nullopt: its name
};

// A straight line, such as a power law.
struct ScatterLine {
  Point from, to;
  std::size_t style = 0;
};

// The horizontal distance between two lines, with a label.
struct ScatterGap {
  Point from, to;  // equal y
  std::string text;
  std::size_t style = 0;
};

// Labelled points on logarithmic scales.
struct ScatterChart {
  std::string title, x_label;
  std::vector<ScatterPoint> points;
  std::vector<ScatterLine> lines = {};
  std::vector<ScatterGap> gaps = {};
};

struct IntervalRow {
  std::string name;
  double mean = 0.0, low = 0.0, high = 0.0;
  std::string text;  // the interval as text
  std::size_t style = 0;
};

// Means with intervals, one per row, on an axis that includes zero.
struct IntervalChart {
  std::string title;
  std::vector<IntervalRow> rows;
};

// Points whose coordinates are not finite or, on a logarithmic scale, not above 0 are left out. On a logarithmic scale
// the steep beginning of a curve (the first tenth of its x) may be cut off at the top.
std::string line_chart(const LineChart& chart);
std::string scatter_chart(const ScatterChart& chart);
std::string interval_chart(const IntervalChart& chart);

// A complete SVG file with the charts side by side under their titles; it contains the style sheet.
std::string standalone(const std::vector<LineChart>& charts);

// A short line in a run's style, for legends and tables.
std::string line_sample(std::size_t style);

// A bar for a table cell, in a run's style; `share` is its length as a fraction of the cell's width. Empty if the share
// is not finite.
std::string small_bar(double share, std::size_t style);

// About `wanted` round numbers in [low, high].
std::vector<double> linear_ticks(double low, double high, int wanted);
// 3 to about 8 round numbers in [low, high] for a logarithmic scale, 0 < low < high.
std::vector<double> logarithmic_ticks(double low, double high);

}  // namespace headroom::draw
