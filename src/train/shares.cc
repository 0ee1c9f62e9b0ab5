#include "headroom/train/shares.h"

#include "headroom/cost/processes.h"

namespace headroom::train {

Shares::Shares(const nn::Parameters& parameters, int processes) : numbers_(static_cast<std::size_t>(processes), 0) {
  std::vector<std::int64_t> sizes;
  for (const nn::Parameter& parameter : parameters.all()) {
    sizes.push_back(parameter.tensor.numel());
  }
  owners_ = cost::share_out(sizes, processes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    numbers_[static_cast<std::size_t>(owners_[i])] += sizes[i];
  }
}

}  // namespace headroom::train
