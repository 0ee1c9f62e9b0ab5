#include "charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "foundation/core/ceil_div.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
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

namespace {

std::string with_thousands(long long number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t at = std::ssize(digits) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

// Returns the number of decimals that gives three significant digits.
int decimals(double number) {
  const double magnitude = std::abs(number);
  return magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
}

}  // namespace

std::string shorten(std::string_view text, std::size_t characters) {
  std::string whole = repair_utf8(text);
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!continues_character(whole[i])) {
      starts.push_back(i);
    }
  }
  if (starts.size() <= characters) {
    return whole;
  }
  // Removes the middle, because names often differ at their ends.
  const std::size_t head = characters / 2, tail = characters - head - 1;
  return whole.substr(0, starts[head]) + "\xe2\x80\xa6" + (tail > 0 ? whole.substr(starts[starts.size() - tail]) : "");
}

std::string short_number(double number) {
  if (!std::isfinite(number)) {
    return "not finite";
  }
  constexpr std::array<const char*, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (std::abs(number) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    number /= 1000.0;
    ++prefix;
  }
  const bool whole = prefix == 0 && number == std::floor(number);
  return format_decimal(number, whole ? 0 : decimals(number)) + kPrefixes[prefix];
}

std::string plain_number(double number) {
  if (!std::isfinite(number)) {
    return "not finite";
  }
  if (std::abs(number) >= 1e15) {
    return fmt::format("{:.3g}", number);
  }
  if (std::abs(number) >= 999.95) {
    return with_thousands(std::llround(number));
  }
  constexpr double kShare = 0.99995;  // smaller values, such as accuracies, get more digits
  return format_decimal(number, std::abs(number) < kShare ? 4 : std::abs(number) < 99.995 ? 2 : 1);
}

}  // namespace headroom::draw
