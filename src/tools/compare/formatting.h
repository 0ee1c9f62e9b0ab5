// Formats numbers and lists for tables and sentences.
#pragma once

#include <string>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"

namespace headroom::compare {

struct Interval;

using draw::plain_number;
using draw::short_number;
using draw::shorten;

// Shown for an unknown figure.
inline constexpr const char* kUnknown = "\u2013";

// Returns "7.37", or "7.370 ± 0.052" with a deviation: two significant digits of the deviation, and as many decimals of
// the mean.
std::string with_deviation(double mean, double deviation);
std::string with_deviation(const std::vector<double>& values);  // mean and sample deviation of the values

// "-0.21 [-0.30, -0.12]", with two significant digits of the interval's half width.
std::string interval_text(const Interval& interval);

// "0.21", "30.1": at least two decimals below 10, and two significant digits.
std::string difference_text(double difference);

// Three significant digits and "x": "0.376x", "1x", "12.5x".
std::string ratio_text(double ratio);

// "a", "a and b", "a, b and c".
std::string enumerated(const std::vector<std::string>& items);

}  // namespace headroom::compare
