// Statistics of a few runs per model (means, standard deviations, confidence intervals by Student's t), and their form
// in tables and sentences.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"

namespace headroom::compare {

// Returns NaN for an empty list.
double mean(const std::vector<double>& values);

// Returns the sample standard deviation, sqrt(sum (x - mean)^2 / (n - 1)); NaN for fewer than two values.
double sample_deviation(const std::vector<double>& values);

// Returns t such that P(T <= t) = probability, 0 < probability < 1, for Student's t with `degrees` >= 1 degrees of
// freedom.
double student_quantile(double probability, int degrees);

struct Interval {
  double mean = 0.0, low = 0.0, high = 0.0;
  bool excludes_zero() const { return low > 0.0 || high < 0.0; }
};

// Returns the mean of the paired differences mine[i] - others[i] and its confidence interval, mean -/+ t s / sqrt(n),
// where s is the sample deviation of the differences and t the quantile for n - 1 degrees of freedom. Surplus values of
// the longer list are ignored. Returns nullopt for fewer than two pairs or if a value is not finite. `range`: of the
// values (FigureKind::range).
std::optional<Interval> paired_difference(const std::vector<double>& mine, const std::vector<double>& others,
                                          double range = std::numeric_limits<double>::infinity());

// Returns the interval of a difference without the part that is impossible for values within `range` of each other.
Interval within(const Interval& difference, double range);

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
