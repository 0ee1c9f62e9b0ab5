#include "sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "headroom/core/error.h"

namespace headroom::decode {

std::int32_t sample(std::span<const double> logits, const SampleOptions& options, Random& random) {
  if (!std::all_of(logits.begin(), logits.end(), [](double logit) { return std::isfinite(logit); })) {
    fail("generate: the model's logits are not finite");
  }
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] != logits[static_cast<std::size_t>(b)]
               ? logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)]
               : a < b;
  };
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (options.temperature == 0.0) {
    return *std::min_element(ids.begin(), ids.end(), likelier);
  }
  const std::size_t kept =
      options.top_k == 0 ? ids.size() : std::min(ids.size(), static_cast<std::size_t>(options.top_k));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), likelier);
  ids.resize(kept);

  const double highest = logits[static_cast<std::size_t>(ids.front())];
  std::vector<double> cumulative;  // unnormalised, likeliest first
  double total = 0.0;
  for (const std::int32_t id : ids) {
    total += std::exp((logits[static_cast<std::size_t>(id)] - highest) / options.temperature);
    cumulative.push_back(total);
  }
  // The fewest that reach top_p of the mass, at least one.
  const auto end = std::lower_bound(cumulative.begin(), cumulative.end(), options.top_p * total);
  const std::size_t last = std::min(static_cast<std::size_t>(end - cumulative.begin()), kept - 1);
  const double draw = random.uniform() * cumulative[last];
  const auto chosen =
      std::upper_bound(cumulative.begin(), cumulative.begin() + static_cast<std::ptrdiff_t>(last), draw);
  return ids[static_cast<std::size_t>(chosen - cumulative.begin())];
}

}  // namespace headroom::decode
