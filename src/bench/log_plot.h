// A drawing of how something grows: lines over two logarithmic axes, a file that shows itself in any browser.
#pragma once

#include <string>
#include <vector>

namespace headroom::bench {

struct Growth {
  std::string name;
  std::vector<double> x, y;  // above 0, x ascending
};

struct LogPlot {
  std::string title, x_label, y_label;
  std::vector<Growth> lines;
};

// The plots side by side, as one SVG.
std::string draw(const std::vector<LogPlot>& plots);

// b of the power law y = a x^b that comes nearest to the last `points` (all when 0).
double slope(const Growth& line, std::size_t points = 0);

}  // namespace headroom::bench
