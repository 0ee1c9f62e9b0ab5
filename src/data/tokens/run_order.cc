#include "run_order.h"

#include <algorithm>
#include <numeric>

#include "foundation/core/random.h"
#include "shuffle.h"

namespace headroom::data {

RunOrder::RunOrder(const RunShuffle& runs, std::uint64_t seed)
    : seed_(mix(seed, "together")), together_(runs.together) {
  std::vector<std::int64_t> first(runs.sizes.size());
  std::exclusive_scan(runs.sizes.begin(), runs.sizes.end(), first.begin(), std::int64_t{0});
  const Shuffle files(runs.sizes.size(), mix(seed, "files"));
  std::int64_t end = 0;
  for (std::uint64_t i = 0; i < runs.sizes.size(); ++i) {
    const auto file = static_cast<std::size_t>(files(i));
    begins_.push_back(first[file]);
    ends_.push_back(end += runs.sizes[file]);
  }
}

std::int64_t RunOrder::operator()(std::int64_t place) const {
  const std::int64_t begin = place / together_ * together_, count = std::min(together_, ends_.back() - begin);
  const Shuffle within(static_cast<std::uint64_t>(count), mix(seed_, static_cast<std::uint64_t>(begin)));
  const std::int64_t shuffled = begin + static_cast<std::int64_t>(within(static_cast<std::uint64_t>(place - begin)));
  const auto file = std::upper_bound(ends_.begin(), ends_.end(), shuffled);
  const auto i = static_cast<std::size_t>(file - ends_.begin());
  return begins_[i] + shuffled - (i == 0 ? 0 : ends_[i - 1]);
}

}  // namespace headroom::data
