#include "formatting.h"

#include "tools/compare/figures/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headroom::compare {
namespace {

// Returns the number of decimals that shows two significant digits of the spread.
int digits_for(double spread) {
  return spread > 0.0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(spread))), 0, 9) : 2;
}

}  // namespace

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
