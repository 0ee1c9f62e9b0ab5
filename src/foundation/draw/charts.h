// Charts and heat maps as data, which the page draws (page/charts.js).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::draw {

// Number of styles. A run has the same style, `style % kStyles`, and thus the same colour and line style in all charts.
// Style -1 - n is the line style n without its colour, for lines that stand for no run.
inline constexpr int kStyles = 8;

struct Point {
  double x = 0.0, y = 0.0;
};

struct Spread {
  double x = 0.0, low = 0.0, high = 0.0;
};

struct Line {
  std::string name;
  std::vector<Point> points;  // x ascending
  std::vector<Spread> band;   // shaded area around the line; x ascending, or empty
  int style = 0;
  bool faint = false;  // thin and without a label, to accompany another line
  bool raw = false;    // with `faint`: the values behind a running mean, which a pointer does not show
  bool dots = true;    // a dot at each point, which must be a measurement
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
  bool end_values = false;           // append the last value to a line's label
  std::size_t name_room = 14;        // maximum number of characters in a line's label
  std::vector<std::string> x_names;  // labels at x = 0, 1, ... instead of numbers
};

struct Interval {
  double low = 0.0, high = 0.0;
};

struct ScatterPoint {
  std::string name;
  Point at;
  int style = 0;
  std::optional<std::string> label = {};  // nullopt: the name
  std::optional<Interval> interval = {};  // an interval around at.y
};

// A straight line, such as a power law.
struct ScatterLine {
  Point from, to;
  int style = 0;
};

// Marks the horizontal distance between two lines, with a label.
struct ScatterGap {
  Point from, to;  // equal y
  std::string text;
  int style = 0;
};

// Labelled points on logarithmic scales. Points with the same coordinates are drawn side by side.
struct ScatterChart {
  std::string title, x_label;
  std::vector<ScatterPoint> points;
  std::vector<ScatterLine> lines = {};
  std::vector<ScatterGap> gaps = {};
};

struct IntervalRow {
  std::string name;
  double mean = 0.0, low = 0.0, high = 0.0;
  std::string text;  // the interval, formatted
  int style = 0;
};

// Means with intervals, one per row, along an axis that includes zero.
struct IntervalChart {
  std::string title;
  std::vector<IntervalRow> rows;
};

// Return a chart as a block of a page (page.h). The page omits points whose coordinates are not finite or, on a
// logarithmic scale, not above 0. On a logarithmic scale the top may cut off the steep start of a curve.
Json block_of(const LineChart& chart);
Json block_of(const ScatterChart& chart);
Json block_of(const IntervalChart& chart);

// A matrix in row-major order: attention maps, routing weights, maps between heads.
struct Cells {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;
};

// The colour scale. 0 is transparent; `full` and larger values are fully coloured. Negative values have another colour.
// The opacity of a smaller value is (|value| / full)^power.
struct Shade {
  double full = 1.0, power = 1.0;
};

struct HeatMap {
  std::string title;  // the accessible name
  Cells cells;
  Shade shade;
  std::vector<std::string> row_names, column_names;  // shown only if cells are large enough
  std::string row_label, column_label;               // labels of the axes
  // Panels beside the map with values from 0 to 1. `left` has the rows of the map, `below` has its columns.
  std::optional<Cells> left, below;
  double width = 480.0;  // in SVG user units
};

// Returns a heat map as a block. Cells are square unless names or panels need more space. If there are more than
// kMostShades rows or columns, neighbouring cells are merged, keeping the value with the largest magnitude. Throws
// Error if the number of values does not match the shape.
inline constexpr std::size_t kMostShades = 384;
Json block_of(const HeatMap& map);

}  // namespace headroom::draw
