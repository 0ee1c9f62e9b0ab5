// Text and numbers as a page shows them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "statistics.h"

namespace headroom::analysis {

// What stands in tables and charts for a figure that is not known.
inline constexpr const char* kUnknown = "\u2013";

// At most `characters` (at least 1) characters of valid UTF-8, with an ellipsis where the middle was left out.
std::string shorten(std::string_view text, std::size_t characters);

// Three significant digits and a unit prefix: "763 k", "2.70 M", "5.37 G".
std::string short_number(double number);

// A perplexity, an accuracy, or a count in full: "0.9531", "7.37", "23.14", "120.2", "1,204".
std::string plain_number(double number);

// "7.37", or with the deviation of several values "7.370 ± 0.052": two digits of it, as many decimals of the mean.
std::string with_deviation(double mean, double deviation);

// "-0.21 [-0.30, -0.12]", with two digits of the interval's half width.
std::string interval_text(const Interval& interval);

// The number that a text is as a whole.
std::optional<double> as_number(const std::string& text);

// Three significant digits and "x": "0.376x", "1x", "12.5x".
std::string ratio_text(double ratio);

// "3 runs", "1 run".
std::string counted(std::size_t count, std::string_view thing);

// "a", "a and b", "a, b and c".
std::string enumerated(const std::vector<std::string>& items);

}  // namespace headroom::analysis
