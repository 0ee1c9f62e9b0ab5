#include "statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "headroom/core/error.h"

namespace headroom::compare {

double mean(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(const std::vector<double>& values) {
  if (values.size() < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double middle = mean(values);
  double squares = 0.0;
  for (const double value : values) {
    squares += (value - middle) * (value - middle);
  }
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

namespace {

// Returns P(T <= t), by the finite series for integer degrees (Abramowitz and Stegun 26.7.3 and 26.7.4).
double student_probability(double t, int degrees) {
  if (degrees < 1) {
    fail("statistics: degrees of freedom must be at least 1, got {}", degrees);
  }
  // A(t) = P(|T| <= |t|) as a sum of powers of cos(theta), tan(theta) = |t| / sqrt(degrees).
  const double theta = std::atan(std::abs(t) / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(theta), sine = std::sin(theta);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1.0, sum = 0.0;
  for (int power = odd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term;
    term *= cosine * cosine * (power + 1.0) / (power + 2.0);
  }
  const double inside = odd ? 2.0 / std::numbers::pi * (theta + sine * sum) : sine * sum;
  return t < 0.0 ? 0.5 - inside / 2.0 : 0.5 + inside / 2.0;
}

// Returns the number of decimals that shows two significant digits of the spread.
int digits_for(double spread) {
  return spread > 0.0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(spread))), 0, 9) : 2;
}

}  // namespace

double student_quantile(double probability, int degrees) {
  if (!(probability > 0.0 && probability < 1.0)) {
    fail("statistics: a probability must lie between 0 and 1, got {}", probability);
  }
  if (probability < 0.5) {
    return -student_quantile(1.0 - probability, degrees);
  }
  double low = 0.0, high = 1.0;
  while (student_probability(high, degrees) < probability && high < 1e300) {
    high *= 2.0;
  }
  for (double middle = 0.5 * (low + high); middle > low && middle < high; middle = 0.5 * (low + high)) {
    (student_probability(middle, degrees) < probability ? low : high) = middle;
  }
  return high;
}

Interval within(const Interval& difference, double range) {
  return {.mean = difference.mean, .low = std::max(difference.low, -range), .high = std::min(difference.high, range)};
}

std::optional<Interval> paired_difference(const std::vector<double>& mine, const std::vector<double>& others,
                                          double range) {
  constexpr double kConfidence = 0.95;
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(mine.size(), others.size()); ++i) {
    differences.push_back(mine[i] - others[i]);
  }
  const double middle = mean(differences), deviation = sample_deviation(differences);
  if (!std::isfinite(middle) || !std::isfinite(deviation)) {
    return std::nullopt;
  }
  const double pairs = static_cast<double>(differences.size());
  const double reach = student_quantile(0.5 + kConfidence / 2.0, static_cast<int>(differences.size()) - 1) * deviation /
                       std::sqrt(pairs);
  return within({.mean = middle, .low = middle - reach, .high = middle + reach}, range);
}

std::string with_deviation(double mean, double deviation) {
  if (!std::isfinite(mean) || !(deviation > 0.0)) {
    return plain_number(mean);
  }
  const int digits = digits_for(deviation);
  return format_decimal(mean, digits) + " \u00b1 " + format_decimal(deviation, digits);
}

std::string with_deviation(const std::vector<double>& values) {
  return with_deviation(mean(values), sample_deviation(values));
}

std::string interval_text(const Interval& interval) {
  const int digits = digits_for((interval.high - interval.low) / 2.0);
  return fmt::format("{} [{}, {}]", format_decimal(interval.mean, digits), format_decimal(interval.low, digits),
                     format_decimal(interval.high, digits));
}

std::string difference_text(double difference) {
  return format_decimal(difference, std::abs(difference) < 9.995 ? std::max(2, digits_for(difference)) : 1);
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.3g}x", ratio) : "not finite";
}

std::string enumerated(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

}  // namespace headroom::compare
