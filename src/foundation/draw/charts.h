// Charts as inline SVG: no scripts, colours and line styles from the page's style sheet (draw/style.h), so that they
// follow its light and dark schemes; or as a drawing of its own, which brings that style sheet along.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "svg.h"

namespace headroom::draw {

// Runs keep their colour and line style through all charts: number `style % kStyles`.
inline constexpr std::size_t kStyles = 8;

// Characters of a label next to what it names; longer ones are shortened.
inline constexpr std::size_t kNameRoom = 14;

struct Spread {
  double x = 0.0, low = 0.0, high = 0.0;
};

struct Line {
  std::string name;
  std::vector<Point> points;  // x ascending
  std::vector<Spread> band;   // shaded around the line; x ascending, or empty
  std::size_t style = 0;
  bool faint = false;  // thin and without a label: a companion of another line in its style
};

enum class YScale {
  logarithmic,  // what perplexity asks for, since its logarithm is the loss
  from_zero,    // linear, from 0 to the largest value
  shares,       // linear, from 0 to 1
};

// Values over x.
struct LineChart {
  std::string title, x_label;
  std::vector<Line> lines;
  YScale y = YScale::logarithmic;
  bool end_values = false;            // behind its name stands the value that a line ends at
  bool logarithmic_x = false;         // x above 0, ticks at the powers of two: how something grows
  std::size_t name_room = kNameRoom;  // most characters of a name at the end of a line
  std::vector<std::string> x_names;   // names shown at x = 0, 1, ... instead of numbers
};

struct ScatterPoint {
  std::string name;
  Point at;
  std::size_t style = 0;
  std::optional<std::string> label = {};  // written next to it; nothing: its name
};

// A straight line among the points, such as a power law.
struct ScatterLine {
  Point from, to;
  std::size_t style = 0;
};

// The distance between two lines at one height, with what it comes to.
struct ScatterGap {
  Point from, to;  // of one y
  std::string text;
  std::size_t style = 0;
};

// Named points, both scales logarithmic.
struct ScatterChart {
  std::string title, x_label;
  std::vector<ScatterPoint> points;
  std::vector<ScatterLine> lines = {};
  std::vector<ScatterGap> gaps = {};
};

struct IntervalRow {
  std::string name;
  double mean = 0.0, low = 0.0, high = 0.0;
  std::string text;  // the interval as it is printed
  std::size_t style = 0;
};

// Means with their intervals, a row each, over an axis that shows zero.
struct IntervalChart {
  std::string title;
  std::vector<IntervalRow> rows;
};

// Points with a y that is not finite or, on a logarithmic scale, not above 0 are left out. The steep beginning of a
// curve (the first tenth of its x) may lie above a logarithmic scale's frame.
std::string line_chart(const LineChart& chart);
std::string scatter_chart(const ScatterChart& chart);
std::string interval_chart(const IntervalChart& chart);

// Charts side by side under their titles, as one file that shows itself in any browser.
std::string standalone(const std::vector<LineChart>& charts);

// A short piece of line in a run's style, for legends and tables.
std::string line_sample(std::size_t style);

// A bar for a cell of a table, in a run's style: `share` of the cell's width, which is that of the column's largest
// value. Nothing drawn where the share is not finite.
std::string small_bar(double share, std::size_t style);

// Round numbers from at or above `low` to at or below `high`, about `wanted` of them.
std::vector<double> linear_ticks(double low, double high, int wanted);
// Round numbers for a logarithmic scale, 0 < low < high: 3 to about 8 of them.
std::vector<double> logarithmic_ticks(double low, double high);

}  // namespace headroom::draw
