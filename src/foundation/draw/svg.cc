#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <vector>

#include "charts.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"

namespace headroom::draw {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : repair_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        out += control ? std::string(kReplacement) : std::string(1, c);
      }
    }
  }
  return out;
}

Attribute::Attribute(std::string_view name_in, double length) : name(name_in), value(fmt::format("{:.1f}", length)) {}
Attribute::Attribute(std::string_view name_in, std::string_view text) : name(name_in), value(escape(text)) {}

std::string element(std::string_view name, Attributes attributes, std::string_view content) {
  std::string out = fmt::format("<{}", name);
  for (const Attribute& attribute : attributes) {
    out += fmt::format(" {}='{}'", attribute.name, attribute.value);
  }
  return out + (content.empty() ? "/>" : fmt::format(">{}</{}>", content, name));
}

std::string line_through(const std::vector<Point>& points) {
  std::string path;
  for (const Point& point : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', point.x, point.y);
  }
  return path;
}

std::string horizontal(double from_x, double y, double to_x) {
  return fmt::format("M{:.1f} {:.1f}H{:.1f}", from_x, y, to_x);
}

std::string vertical(double x, double from_y, double to_y) {
  return fmt::format("M{:.1f} {:.1f}V{:.1f}", x, from_y, to_y);
}

std::string style_class(const char* name, std::size_t style) {
  return fmt::format("{} s{}{}", name, style % kStyles, style >= kNeutral ? " neutral" : "");
}

std::string text_at(const std::string& kind, double x, double y, const std::string& content) {
  return element("text", {{"class", kind}, {"x", x}, {"y", y}}, content);
}

namespace {

// Formats a number as "5e-4" or "1.5e-3".
std::string with_exponent(double number) {
  const std::string text = fmt::format("{:.5e}", number);
  const std::size_t e = text.find('e');
  const std::size_t digits = text.find_last_not_of("0.", e - 1) + 1;
  return text.substr(0, digits) + fmt::format("e{}", std::stoi(text.substr(e + 1)));
}

}  // namespace

std::string tick_text(double tick) {
  const double size = std::abs(tick);
  constexpr double kSmall = 0.01;  // numbers below this are written with an exponent
  return size >= 1e12                    ? fmt::format("{:.6g} T", tick / 1e12)
         : size >= 1e9                   ? fmt::format("{:.6g} G", tick / 1e9)
         : size >= 1e6                   ? fmt::format("{:.6g} M", tick / 1e6)
         : size >= 1e4                   ? fmt::format("{:.6g} k", tick / 1e3)
         : size >= kSmall || size == 0.0 ? fmt::format("{:.6g}", tick)
                                         : with_exponent(tick);
}

void spread_labels(std::vector<double>& heights, double bottom) {
  constexpr double kLabelGap = 15.0;  // minimum distance between baselines
  std::vector<std::size_t> order(heights.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return heights[a] < heights[b]; });
  double floor = -std::numeric_limits<double>::infinity();
  for (const std::size_t i : order) {
    heights[i] = floor = std::max(heights[i], floor + kLabelGap);
  }
  double ceiling = bottom;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    heights[*i] = std::min(heights[*i], ceiling);
    ceiling = heights[*i] - kLabelGap;
  }
}

std::string chart_of(double height, const std::string& title, const std::string& drawing) {
  return element("svg",
                 {{"class", "chart"},
                  {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", kWidth, height)},
                  {"role", "img"},
                  {"aria-label", title}},
                 drawing);
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
