#include "headroom/train/shares.h"

#include <algorithm>
#include <numeric>

namespace headroom::train {

Shares::Shares(const nn::Parameters& parameters, int processes)
    : owners_(parameters.all().size(), 0), numbers_(static_cast<std::size_t>(processes), 0) {
  const std::vector<nn::Parameter>& all = parameters.all();
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].tensor.numel() > all[b].tensor.numel(); });
  for (const std::size_t i : order) {
    const auto emptiest = std::min_element(numbers_.begin(), numbers_.end());
    owners_[i] = static_cast<int>(emptiest - numbers_.begin());
    *emptiest += all[i].tensor.numel();
  }
}

}  // namespace headroom::train
