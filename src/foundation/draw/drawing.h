// What the page's charts share: their width, and how text and styles are written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace headroom::draw {

// The drawings' own units; the page scales them to the room there is.
inline constexpr double kWidth = 480.0, kChartHeight = 330.0;  // height: of charts with two axes

// "line s3".
std::string style_class(const char* name, std::size_t style);

// Text, which is markup already, of one of the style sheet's kinds.
std::string text_at(const std::string& kind, double x, double y, const std::string& content);

// A tick is round: no digits are lost.
std::string tick_text(double tick);

// Moves labels at these heights apart where they would overlap, keeping their order and staying above `bottom`.
void spread_labels(std::vector<double>& heights, double bottom);

// The whole drawing under a title for those who cannot see it.
std::string chart_of(double height, const std::string& title, const std::string& drawing);

}  // namespace headroom::draw
