#include "sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom::tasks {

void Sum::add(double value, std::int64_t counted) {
  sum += value;
  count += counted;
}

void add(Sums& sums, const Sums& more) {
  for (const auto& [name, sum] : more) {
    sums[name].add(sum.sum, sum.count);
  }
}

Sum sum_of(const Sums& sums, std::string_view name) {
  const auto found = sums.find(name);
  return found == sums.end() ? Sum() : found->second;
}

double mean(const Sums& sums, std::string_view name) {
  const Sum sum = sum_of(sums, name);
  return sum.count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum.sum / static_cast<double>(sum.count);
}

double standard_error(const Sums& sums, std::string_view name, std::string_view squares) {
  const Sum values = sum_of(sums, name), squared = sum_of(sums, squares);
  if (values.count < 2 || squared.count != values.count) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto n = static_cast<double>(values.count);
  const double middle = values.sum / n;
  return std::sqrt(std::max(0.0, squared.sum / n - middle * middle) / (n - 1.0));
}

}  // namespace headroom::tasks
