#include "spread.h"

#include <algorithm>
#include <numeric>

namespace headroom::data {

std::vector<UnitRange> spread_ranges(std::int64_t size, std::int64_t count, std::int64_t ranges) {
  std::vector<UnitRange> all;
  for (std::int64_t i = 0; i < ranges; ++i) {
    const std::int64_t first = i * count / ranges, next = (i + 1) * count / ranges;
    const std::int64_t skipped = (2 * i + 1) * (size - count) / (2 * ranges);  // units before this range
    all.push_back({.begin = skipped + first, .end = skipped + next});
  }
  return all;
}

std::vector<std::int64_t> spread_units(std::int64_t size, std::int64_t most,
                                       const std::function<std::int64_t(std::int64_t unit)>& cost) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(size));
  std::iota(units.begin(), units.end(), std::int64_t{0});
  const auto total = [&] {
    return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int64_t unit) { return sum + cost(unit); });
  };
  // If the part is too large, it shrinks in proportion and is spread again.
  for (std::int64_t sum = total(); most > 0 && sum > most && units.size() > 1; sum = total()) {
    const auto now = std::ssize(units);
    const double share = static_cast<double>(most) / static_cast<double>(sum);
    const auto fits = static_cast<std::int64_t>(share * static_cast<double>(now));
    const std::int64_t count = std::clamp<std::int64_t>(fits, 1, now - 1);
    units.clear();
    for (const UnitRange& one : spread_ranges(size, count, count)) {
      units.push_back(one.begin);
    }
  }
  return units;
}

}  // namespace headroom::data
