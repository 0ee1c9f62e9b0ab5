// Draws a matrix as a greyscale PNG that masks a rectangle in the page's colour. The map then follows the light and
// dark schemes, and takes one byte per cell.
#include "charts.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "foundation/core/ceil_div.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "svg.h"

namespace headroom::draw {
namespace {

constexpr double kNameHeight = 13.0;    // cells below this height have no names
constexpr double kMostHeight = 44.0;    // maximum height of a row with a name
constexpr double kNameWidth = 62.0;     // width of the column of row names
constexpr std::size_t kRowName = 9;     // maximum characters of a row name
constexpr std::size_t kMostNames = 40;  // maximum number of named rows
constexpr double kPanelCell = 12.0;     // cell size in a panel, independent of the map's cells,
constexpr double kMostPanel = 0.25;     // up to this fraction of the map's size
constexpr double kPanelGap = 5.0, kLabelHeight = 16.0, kFoot = 18.0;

struct Box {
  double x = 0.0, y = 0.0, width = 0.0, height = 0.0;
};

void check_shape(const Cells& cells) {
  if (cells.rows == 0 || cells.columns == 0 || cells.values.size() != cells.rows * cells.columns) {
    fail("heat map: expected {} x {} values, got {}", cells.rows, cells.columns, cells.values.size());
  }
}

double panel_width(std::size_t cells, double map_width) {
  return std::min(kPanelCell * static_cast<double>(cells), kMostPanel * map_width);
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

// Returns the values of one sign, which share a colour.
std::string layer(const Cells& cells, const Shade& shade, double sign, const Box& box) {
  std::vector<unsigned char> shades;
  shades.reserve(cells.values.size());
  bool any = false;
  for (const float value : cells.values) {
    const double share =
        shade.full > 0.0 && std::isfinite(value) ? std::clamp(sign * value / shade.full, 0.0, 1.0) : 0.0;
    shades.push_back(static_cast<unsigned char>(std::lround(std::pow(share, shade.power) * 255.0)));
    any |= shades.back() > 0;
  }
  if (!any) {
    return "";
  }
  const std::string png = to_base64(grey_png(cells.columns, cells.rows, shades));
  // Equal masks may share an id.
  const std::string id = fmt::format("m{:016x}", std::hash<std::string>()(fmt::format("{}{}{}", png, box.x, box.y)));
  const std::string image = element("image", {{"x", box.x},
                                              {"y", box.y},
                                              {"width", box.width},
                                              {"height", box.height},
                                              {"preserveAspectRatio", "none"},
                                              {"style", "image-rendering: pixelated"},
                                              {"href", "data:image/png;base64," + png}});
  return element("mask",
                 {{"id", id},
                  {"maskUnits", "userSpaceOnUse"},
                  {"x", box.x},
                  {"y", box.y},
                  {"width", box.width},
                  {"height", box.height}},
                 image) +
         element("rect", {{"class", sign > 0 ? "heat" : "heat below"},
                          {"x", box.x},
                          {"y", box.y},
                          {"width", box.width},
                          {"height", box.height},
                          {"mask", fmt::format("url(#{})", id)}});
}

std::string panel(const Cells& cells, const Shade& shade, const Box& box) {
  check_shape(cells);
  const Cells fewer = merge_neighbours(cells);
  return layer(fewer, shade, 1.0, box) + layer(fewer, shade, -1.0, box) +
         element("rect", {{"class", "edge"}, {"x", box.x}, {"y", box.y}, {"width", box.width}, {"height", box.height}});
}

std::string turned(double x, double y, const std::string& kind, const std::string& text) {
  return element("text", {{"class", kind}, {"transform", fmt::format("translate({:.1f} {:.1f}) rotate(-90)", x, y)}},
                 text);
}

std::string names_beside(const HeatMap& map, const Box& box) {
  const double each = box.height / static_cast<double>(map.cells.rows);
  std::string all;
  for (std::size_t i = 0; i < map.row_names.size() && each >= kNameHeight; ++i) {
    all += text_at("y", box.x - 6, box.y + each * (static_cast<double>(i) + 0.5) + 4,
                   escape(shorten(map.row_names[i], kRowName)));
  }
  return all;
}

std::string names_below(const HeatMap& map, const Box& box, double y) {
  const double each = box.width / static_cast<double>(map.cells.columns);
  std::string all;
  for (std::size_t i = 0; i < map.column_names.size() && each >= kNameHeight; ++i) {
    all += turned(box.x + each * (static_cast<double>(i) + 0.5) + 4, y, "y",
                  escape(shorten(map.column_names[i], kRowName)));
  }
  return all;
}

void append_number(std::string& to, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) {
    to += static_cast<char>((number >> shift) & 0xffU);
  }
}

void append_chunk(std::string& to, const std::string& type, const std::string& data) {
  append_number(to, static_cast<std::uint32_t>(data.size()));
  const std::string checked = type + data;
  to += checked;
  append_number(to, static_cast<std::uint32_t>(
                        crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()))));
}

}  // namespace

std::string heat_map(const HeatMap& map) {
  check_shape(map.cells);
  const auto rows = static_cast<double>(map.cells.rows), columns = static_cast<double>(map.cells.columns);
  const bool row_names = !map.row_names.empty() && map.cells.rows <= kMostNames;
  const double beside = map.left ? panel_width(map.left->columns, map.width) + kPanelGap : 0.0;
  const double under = map.below ? panel_width(map.below->rows, map.width) + kPanelGap : 0.0;
  Box box{.x = (row_names ? kNameWidth : map.row_label.empty() ? 2.0 : kLabelHeight) + beside, .y = 2.0};
  box.width = map.width - box.x - 2.0;
  box.height = row_names ? rows * std::clamp(box.width / columns, kNameHeight + 1, kMostHeight)
                         : std::clamp(box.width / columns * rows, 24.0, 2 * map.width);
  std::string drawing = panel(map.cells, map.shade, box);
  double foot = box.y + box.height;
  if (map.left) {
    drawing += panel(*map.left, {}, {box.x - beside, box.y, beside - kPanelGap, box.height});
  }
  if (map.below) {
    drawing += panel(*map.below, {}, {box.x, foot + kPanelGap, box.width, under - kPanelGap});
    foot += under;
  }
  if (row_names) {
    Box named = box;
    named.x -= beside;
    drawing += names_beside(map, named);
  } else if (!map.row_label.empty()) {
    drawing += turned(kLabelHeight - 5, box.y + box.height / 2, "x", escape(map.row_label));
  }
  if (!map.column_names.empty() && box.width / columns >= kNameHeight) {
    drawing += names_below(map, box, foot + 5);
    foot += kNameWidth;
  }
  // The axis label on the left, the end of the colour scale on the right.
  drawing += text_at("label-below", box.x, foot + 14, escape(map.column_label));
  drawing += text_at("left", box.x + box.width, foot + 14, "full: " + short_number(map.shade.full));
  return element("svg",
                 {{"class", "chart"},
                  {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", map.width, foot + kFoot)},
                  {"role", "img"},
                  {"aria-label", map.title}},
                 drawing);
}

// The PNG format (ISO/IEC 15948): signature, header, one compressed data chunk, end.
std::string grey_png(std::size_t width, std::size_t height, const std::vector<unsigned char>& shades) {
  if (width == 0 || height == 0 || shades.size() != width * height) {
    fail("png: expected {} x {} shades, got {}", height, width, shades.size());
  }
  std::string lines;
  for (std::size_t y = 0; y < height; ++y) {
    lines += '\0';  // no filter
    lines.append(reinterpret_cast<const char*>(shades.data()) + y * width, width);
  }
  uLongf size = compressBound(lines.size());
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()),
                lines.size(), Z_BEST_COMPRESSION) != Z_OK) {
    fail("png: cannot compress {} bytes", lines.size());
  }
  packed.resize(size);
  std::string header;
  append_number(header, static_cast<std::uint32_t>(width));
  append_number(header, static_cast<std::uint32_t>(height));
  header += std::string("\x08\x00\x00\x00\x00", 5);  // 8 bits, grey, deflate, no interlacing
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace headroom::draw
