// Statistics of a few runs per model: means, standard deviations, and confidence intervals by Student's t.
#pragma once

#include <limits>
#include <optional>
#include <vector>

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

}  // namespace headroom::compare
