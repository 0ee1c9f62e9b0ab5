// Heat maps of matrices: attention maps, routing weights, maps between heads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace headroom::draw {

// A matrix in row-major order.
struct Cells {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;
};

// The colour scale. 0 is transparent; `full` and larger values are fully coloured. Negative values have another colour.
struct Shade {
  double full = 1.0;
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

// Returns a heat map as SVG. Cells are square unless names or panels need more space. If there are more than
// kMostShades rows or columns, neighbouring cells are merged, keeping the value with the largest magnitude. Throws
// Error if the number of values does not match the shape.
inline constexpr std::size_t kMostShades = 384;
std::string heat_map(const HeatMap& map);

// Returns an 8-bit greyscale PNG file. `shades` is row-major.
std::string grey_png(std::size_t width, std::size_t height, const std::vector<unsigned char>& shades);

}  // namespace headroom::draw
