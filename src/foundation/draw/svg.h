// SVG as text: elements, their attributes, and lines through points. What is drawn is the caller's.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::draw {

// `text` made safe for HTML and SVG, in elements and in quoted attributes: markup characters as entities,
// invalid UTF-8 and control characters other than tab and line end as U+FFFD.
std::string escape(std::string_view text);

// Lengths are written to a tenth of the drawing's unit, text is escaped.
struct Attribute {
  Attribute(std::string_view name_in, double length);
  Attribute(std::string_view name_in, std::string_view text);
  Attribute(std::string_view name_in, const char* text) : Attribute(name_in, std::string_view(text)) {}
  std::string_view name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

// <name ...>content</name>, or <name .../> without content, which is markup already.
std::string element(std::string_view name, Attributes attributes, std::string_view content = {});

struct Point {
  double x = 0.0, y = 0.0;
};
// Paths for the attribute d.
std::string line_through(const std::vector<Point>& points);
std::string horizontal(double from_x, double y, double to_x);
std::string vertical(double x, double from_y, double to_y);

}  // namespace headroom::draw
