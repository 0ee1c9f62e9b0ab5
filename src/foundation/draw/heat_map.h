// Matrices of numbers as shades: attention maps, selection weights, maps between heads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace headroom::draw {

// Row-major.
struct Cells {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;
};

// How a number becomes a shade: 0 is none, `full` is the whole colour, beyond it no darker; numbers below 0 have a
// colour of their own.
struct Shade {
  double full = 1.0;
};

struct HeatMap {
  std::string title;  // for those who cannot see it
  Cells cells;
  Shade shade;
  std::vector<std::string> row_names, column_names;  // written where a cell has room for them
  std::string row_label, column_label;               // of the axes
  // Panels beside the cells, shaded from 0 to 1: `left` has their rows, `below` their columns.
  std::optional<Cells> left, below;
  double width = 480.0;  // in the drawing's units; small ones stand side by side
};

// Cells are square where names or panels do not ask for more; those of named rows are no higher than a line or
// two. More than kMostShades rows or columns are put together, each shade the largest of its cells by size. Throws
// Error where values and shape do not fit.
inline constexpr std::size_t kMostShades = 384;
std::string heat_map(const HeatMap& map);

// An 8-bit grey picture as a PNG file: `shades` row by row.
std::string grey_png(std::size_t width, std::size_t height, const std::vector<unsigned char>& shades);

}  // namespace headroom::draw
