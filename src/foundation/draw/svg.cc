#include "svg.h"

#include <fmt/format.h>

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

}  // namespace headroom::draw
