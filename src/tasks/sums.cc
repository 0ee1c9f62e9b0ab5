#include "headroom/tasks/sums.h"

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

}  // namespace headroom::tasks
