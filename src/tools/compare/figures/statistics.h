// What a few runs of each model allow to be said: means, deviations, and intervals by Student's t.
#pragma once

#include <optional>
#include <vector>

namespace headroom::compare {

// NaN of nothing.
double mean(const std::vector<double>& values);

// Of a sample: sqrt(sum (x - mean)^2 / (n - 1)); NaN of fewer than two values.
double sample_deviation(const std::vector<double>& values);

// P(T <= t) of Student's t with `degrees` >= 1 degrees of freedom, by the finite series for whole degrees (Abramowitz
// and Stegun 26.7.3 and 26.7.4), and its inverse for 0 < probability < 1.
double student_probability(double t, int degrees);
double student_quantile(double probability, int degrees);

struct Interval {
  double mean = 0.0, low = 0.0, high = 0.0;
  bool excludes_zero() const { return low > 0.0 || high < 0.0; }
};

// The mean of mine[i] - others[i], and the interval in which it lies with this confidence: mean -/+ t s / sqrt(n), with
// s the differences' deviation and t the quantile of n - 1 degrees. Pairs are as many as the shorter list has; nothing
// with fewer than two of them, or when a value is not finite.
std::optional<Interval> paired_difference(const std::vector<double>& mine, const std::vector<double>& others,
                                          double confidence = 0.95);

}  // namespace headroom::compare
