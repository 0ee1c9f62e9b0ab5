// Charts and heat maps as data, which the page draws (page/charts.js).
//
// A chart is a block of a page (page.h). Keys may be missing unless they are named first; points that are not finite
// or, on a logarithmic scale, not above 0 are not drawn.
//   {"chart": "lines", "title", "x_label", "lines"; "y", "bounds", "end_values", "name_room", "x_names"}
//     "y": "logarithmic" (the default, for perplexity, whose logarithm is the loss; the top may cut off the steep start
//     of a curve), "from_zero" or "shares" (from 0 to 1). "bounds": [low, high] of a figure such as an accuracy: the
//     axis is linear and ends within them. "end_values": a line's label has its last value. "name_room": characters of
//     a name in it; with end values, longer names are left to the page's legend. "x_names": labels at x = 0, 1, ...
//     instead of numbers.
//     A line: {"points": [[x, y]]; "name", "style", "band": [[x, low, high]] (shaded), "faint" (thin and without a
//     label, to accompany another line), "raw" (with "faint": the values behind a running mean, which a pointer does
//     not show), "dots": false (the points are not measurements)}, x ascending
//   {"chart": "scatter", "title", "x_label", "points"; "lines", "gaps", "bounds"}: labelled points on logarithmic
//   scales; "bounds": of y, as above
//     A point: {"name", "at": [x, y], "style"; "label" (instead of the name), "interval": [low, high]}. A line:
//     {"from", "to", "style"}. A gap: the same and "text", for the horizontal distance between two lines.
//   {"chart": "intervals", "title", "rows": [{"name", "mean", "low", "high", "text", "style"}]}: along an axis with
//   zero
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::draw {

// Number of styles. A run has the same style, `style % kStyles`, and thus the same colour and line style in all charts.
// Style -1 - n is the line style n without its colour, for lines that stand for no run.
inline constexpr int kStyles = 8;

// Returns a list of numbers with six significant digits, which are enough for a drawing and keep pages small. Those
// that are not finite become null.
Json numbers(std::initializer_list<double> values);

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

// Short texts for tables and sentences.

// Shortens `text` to at most `characters` >= 1 characters by replacing its middle with an ellipsis. Returns valid
// UTF-8.
std::string shorten(std::string_view text, std::size_t characters);

// Formats a number with three significant digits and a unit prefix: "763 k", "2.70 M", "5.37 G".
std::string short_number(double number);

// Formats an accuracy, a perplexity or a count without a prefix: "0.9531", "7.37", "23.14", "120.2", "1,204".
std::string plain_number(double number);

}  // namespace headroom::draw
