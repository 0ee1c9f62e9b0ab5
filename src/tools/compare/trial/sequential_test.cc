#include <algorithm>
#include <cmath>
#include <limits>

#include "trial.h"

namespace headroom::trial {

double level_after(int n, const TestOptions& options) {
  if (n < 2) {
    return 0.0;
  }
  const int earlier = options.pairs - 2;  // tests before the last
  return n < options.pairs ? 0.5 * options.false_keep_rate / earlier
                           : (earlier > 0 ? 0.5 : 1.0) * options.false_keep_rate;
}

compare::Interval interval(const std::vector<double>& differences, const TestOptions& options) {
  const int n = static_cast<int>(differences.size());
  const double middle = compare::mean(differences);
  double reach = std::numeric_limits<double>::infinity();
  if (n > 1) {
    reach = compare::student_quantile(1.0 - level_after(n, options), n - 1) * compare::sample_deviation(differences) /
            std::sqrt(static_cast<double>(n));
  }
  return {.mean = middle, .low = middle - reach, .high = middle + reach};
}

Decision decide(const std::vector<double>& differences, double base_deviation, const TestOptions& options) {
  if (!std::ranges::all_of(differences, [](double d) { return std::isfinite(d); })) {
    return Decision::discard;
  }
  const compare::Interval found = interval(differences, options);
  if (found.high < 0.0) {
    return Decision::keep;
  }
  const double tolerated =
      std::isfinite(base_deviation) ? kHopeless * base_deviation / static_cast<double>(differences.size()) : 0.0;
  return found.mean > tolerated ? Decision::discard : Decision::undecided;
}

}  // namespace headroom::trial
