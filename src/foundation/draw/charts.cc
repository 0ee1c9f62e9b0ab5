#include "charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/ceil_div.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "page.h"

namespace headroom::draw {
Json numbers(std::initializer_list<double> values) {
  return transformed(values, [](double value) {
    return std::isfinite(value) ? Json(std::stod(fmt::format("{:.6g}", value))) : Json();
  });
}

namespace {

// Merges neighbouring cells so that neither axis has more than kMostShades.
Cells merge_neighbours(const Cells& cells) {
  const std::size_t down = ceil_div(cells.rows, kMostShades), across = ceil_div(cells.columns, kMostShades);
  if (down == 1 && across == 1) {
    return cells;
  }
  Cells fewer{.rows = ceil_div(cells.rows, down), .columns = ceil_div(cells.columns, across), .values = {}};
  fewer.values.assign(fewer.rows * fewer.columns, 0.0F);
  for (std::size_t row = 0; row < cells.rows; ++row) {
    for (std::size_t column = 0; column < cells.columns; ++column) {
      float& into = fewer.values[row / down * fewer.columns + column / across];
      const float value = cells.values[row * cells.columns + column];
      into = std::abs(value) > std::abs(into) ? value : into;
    }
  }
  return fewer;
}

// "shades": one signed byte a cell, the opacity from -127 to 127.
Json json_of(const Cells& all, const Shade& shade) {
  if (all.rows == 0 || all.columns == 0 || all.values.size() != all.rows * all.columns) {
    fail("heat map: expected {} x {} values, got {}", all.rows, all.columns, all.values.size());
  }
  const Cells cells = merge_neighbours(all);
  std::string shades;
  for (const float value : cells.values) {
    const double share = shade.full > 0.0 && std::isfinite(value) ? std::min(std::abs(value) / shade.full, 1.0) : 0.0;
    shades += static_cast<char>(std::lround(std::copysign(std::pow(share, shade.power) * 127.0, value)));
  }
  return {{"rows", cells.rows}, {"columns", cells.columns}, {"shades", to_base64(deflated(shades))}};
}

}  // namespace

Json block_of(const HeatMap& map) {
  Json block = {{"chart", "heat"},
                {"title", map.title},
                {"cells", json_of(map.cells, map.shade)},
                {"full", map.shade.full},
                {"row_names", map.row_names},
                {"column_names", map.column_names},
                {"row_label", map.row_label},
                {"column_label", map.column_label},
                {"width", map.width}};
  for (const auto& [name, panel] : {std::pair("left", &map.left), std::pair("below", &map.below)}) {
    if (*panel) {
      block[name] = json_of(**panel, {});
    }
  }
  return block;
}

}  // namespace headroom::draw
