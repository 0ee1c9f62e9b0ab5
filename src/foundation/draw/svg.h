// SVG as text: elements and paths, and what all charts share: sizes, axes, labels and numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::draw {

// Escapes `text` for use in elements and quoted attributes of HTML and SVG. Invalid UTF-8 and control characters other
// than tab and line end become U+FFFD.
std::string escape(std::string_view text);

// An attribute of an element. Lengths are written with one decimal; text is escaped.
struct Attribute {
  Attribute(std::string_view name_in, double length);
  Attribute(std::string_view name_in, std::string_view text);
  Attribute(std::string_view name_in, const char* text) : Attribute(name_in, std::string_view(text)) {}
  std::string_view name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

// Returns <name ...>content</name>, or <name .../> if the content is empty. The content is markup and is not escaped.
std::string element(std::string_view name, Attributes attributes, std::string_view content = {});

struct Point {
  double x = 0.0, y = 0.0;
};
// Path data for the attribute d.
std::string line_through(const std::vector<Point>& points);
std::string horizontal(double from_x, double y, double to_x);
std::string vertical(double x, double from_y, double to_y);

// Sizes in SVG user units; the page scales the drawing.
inline constexpr double kWidth = 480.0, kChartHeight = 330.0;  // kChartHeight: for charts with two axes

// Returns the class attribute of an element drawn in a run's style: "line s3".
std::string style_class(const char* name, std::size_t style);

// Returns a text element with a class of the style sheet. `content` is markup and is not escaped.
std::string text_at(const std::string& kind, double x, double y, const std::string& content);

// Returns the label of a tick at a round number.
std::string tick_text(double tick);

// Moves overlapping labels apart, keeping their order and staying above `bottom`. `heights` are the y coordinates of
// their baselines.
void spread_labels(std::vector<double>& heights, double bottom);

// Returns a complete chart. `title` is its accessible name.
std::string chart_of(double height, const std::string& title, const std::string& drawing);

// An axis. The value `low` is drawn at `from` and `high` at `to`. On a logarithmic scale, low and high are logarithms.
struct Scale {
  double low = 0.0, high = 1.0, from = 0.0, to = 1.0;
  bool logarithmic = false;

  double operator()(double value) const {
    return from + ((logarithmic ? std::log(value) : value) - low) / (high - low) * (to - from);
  }
  // Return the values at the two ends.
  double first() const { return logarithmic ? std::exp(low) : low; }
  double last() const { return logarithmic ? std::exp(high) : high; }
  // Extends both ends by the fraction `share` of the range, but by at least `least`.
  void widen(double share, double least) {
    const double room = std::fmax(share * (high - low), least);
    low -= room;
    high += room;
  }
};

// Shortens `text` to at most `characters` >= 1 characters by replacing its middle with an ellipsis. Returns valid
// UTF-8.
std::string shorten(std::string_view text, std::size_t characters);

// Formats a number with three significant digits and a unit prefix: "763 k", "2.70 M", "5.37 G".
std::string short_number(double number);

// Formats an accuracy, a perplexity or a count without a prefix: "0.9531", "7.37", "23.14", "120.2", "1,204".
std::string plain_number(double number);

}  // namespace headroom::draw
