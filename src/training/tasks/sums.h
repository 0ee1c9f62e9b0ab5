// What an evaluation adds up, by name. Sums of the batches of a data set, of its shards or of the processes that share
// it add up to those of the whole; the task turns them into figures (Task::figures_of).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace headroom::tasks {

struct Sum {
  double sum = 0.0;
  std::int64_t count = 0;

  void add(double value, std::int64_t counted = 1);
  bool operator==(const Sum&) const = default;
};

using Sums = std::map<std::string, Sum, std::less<>>;

// In every task: the cross-entropies in nats, and the number of predictions.
inline constexpr std::string_view kCrossEntropy = "cross_entropy";
// Their squares, of as many predictions where the model tells each prediction's.
inline constexpr std::string_view kSquaredCrossEntropy = "squared_cross_entropy";

// Adds name by name. Rounding depends on the order: the same bits need the same sums in the same order.
void add(Sums& sums, const Sums& more);

// Of an unknown name: nothing summed, nothing counted.
Sum sum_of(const Sums& sums, std::string_view name);
// sum / count; NaN where nothing was counted.
double mean(const Sums& sums, std::string_view name);
// Of that mean, from the sum of the values' squares: sqrt((mean square - mean^2) / (n - 1)), as if the n values were
// drawn independently. NaN of fewer than two, or where the squares are not of as many values.
double standard_error(const Sums& sums, std::string_view name, std::string_view squares);

}  // namespace headroom::tasks
