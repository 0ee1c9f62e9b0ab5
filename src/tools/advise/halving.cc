#include "halving.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tools/compare/figures/statistics.h"

namespace headroom::compare {

std::vector<std::size_t> round_sizes(std::size_t arms) {
  std::vector<std::size_t> sizes;
  for (; arms > kFinalists; arms = (arms + 1) / 2) {
    sizes.push_back(arms);
  }
  if (arms == kFinalists) {
    sizes.push_back(arms);
  }
  return sizes;
}

double halving_units(std::size_t arms) {
  double units = 0.0, length = 1.0;
  const std::vector<std::size_t> sizes = round_sizes(arms);
  for (std::size_t round = 0; round < sizes.size(); ++round, length *= 2.0) {
    const bool last = round + 1 == sizes.size();
    units += length * static_cast<double>(sizes[round]) * (last ? static_cast<double>(kSeedsOfClose) : 1.0);
  }
  return units;
}

std::vector<std::size_t> survivors(const std::vector<double>& scores, std::size_t keep) {
  std::vector<std::size_t> places(scores.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    const bool finite = std::isfinite(scores[a]), other = std::isfinite(scores[b]);
    return finite && other ? scores[a] < scores[b] : finite && !other;
  });
  places.resize(std::min(keep, places.size()));
  std::sort(places.begin(), places.end());
  return places;
}

bool are_close(double one, double other) {
  constexpr double kClose = 0.01;
  return std::isfinite(one) && std::isfinite(other) && std::abs(one - other) <= kClose * std::min(one, other);
}

Verdict decide(const std::vector<double>& first, const std::vector<double>& second) {
  if (first.size() > 1 && second.size() > 1) {
    const std::optional<Interval> difference = paired_difference(second, first);
    if (difference && !difference->excludes_zero()) {
      return {.second = false, .open = true};
    }
  }
  const double one = mean(first), other = mean(second);
  return {.second = std::isfinite(other) && !(one <= other)};
}

}  // namespace headroom::compare
