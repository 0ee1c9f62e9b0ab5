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
namespace {

// Six significant digits, which are enough for a drawing and keep pages small.
Json number(double value) {
  return std::isfinite(value) ? Json(std::stod(fmt::format("{:.6g}", value))) : Json();
}

Json json_of(const Point& point) {
  return {number(point.x), number(point.y)};
}

Json json_of(const Line& line) {
  return {{"name", line.name},
          {"points", transformed(line.points, [](const Point& point) { return json_of(point); })},
          {"band", transformed(line.band,
                               [](const Spread& at) -> Json {
                                 return {number(at.x), number(at.low), number(at.high)};
                               })},
          {"style", line.style},
          {"faint", line.faint},
          {"raw", line.raw},
          {"dots", line.dots}};
}

Json json_of(const ScatterPoint& point) {
  Json json = {{"name", point.name}, {"at", json_of(point.at)}, {"style", point.style}};
  if (point.label) {
    json["label"] = *point.label;
  }
  if (point.interval) {
    json["interval"] = {number(point.interval->low), number(point.interval->high)};
  }
  return json;
}

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

Json block_of(const LineChart& chart) {
  constexpr const char* kScales[] = {"logarithmic", "from_zero", "shares"};
  return {{"chart", "lines"},
          {"title", chart.title},
          {"x_label", chart.x_label},
          {"lines", transformed(chart.lines, [](const Line& line) { return json_of(line); })},
          {"y", kScales[static_cast<std::size_t>(chart.y)]},
          {"end_values", chart.end_values},
          {"name_room", chart.name_room},
          {"x_names", chart.x_names}};
}

Json block_of(const ScatterChart& chart) {
  return {
      {"chart", "scatter"},
      {"title", chart.title},
      {"x_label", chart.x_label},
      {"points", transformed(chart.points, [](const ScatterPoint& point) { return json_of(point); })},
      {"lines", transformed(chart.lines,
                            [](const ScatterLine& line) -> Json {
                              return {{"from", json_of(line.from)}, {"to", json_of(line.to)}, {"style", line.style}};
                            })},
      {"gaps", transformed(chart.gaps, [](const ScatterGap& gap) -> Json {
         return {{"from", json_of(gap.from)}, {"to", json_of(gap.to)}, {"text", gap.text}, {"style", gap.style}};
       })}};
}

Json block_of(const IntervalChart& chart) {
  return {{"chart", "intervals"},
          {"title", chart.title},
          {"rows", transformed(chart.rows, [](const IntervalRow& row) -> Json {
             return {{"name", row.name},         {"mean", number(row.mean)}, {"low", number(row.low)},
                     {"high", number(row.high)}, {"text", row.text},         {"style", row.style}};
           })}};
}

Json block_of(const HeatMap& map) {
  Json block = {{"chart", "heat"},
                {"title", map.title},
                {"cells", json_of(map.cells, map.shade)},
                {"full", number(map.shade.full)},
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
