#include "balance.h"

#include <cmath>

namespace headroom::train {

Balance balance_of(const at::Tensor& counts) {
  const at::Tensor count = counts.to(at::kDouble).reshape({-1});
  const double total = count.sum().item<double>();
  if (total == 0.0) {
    return {};
  }
  const at::Tensor share = count / total;
  const double entropy = -at::xlogy(share, share).sum().item<double>();
  const double most_even = std::log(static_cast<double>(count.numel()));
  return {.most = share.max().item<double>(),
          .least = share.min().item<double>(),
          .entropy = most_even > 0.0 ? entropy / most_even : 1.0};
}

std::map<std::string, Balance> balance_of(const nn::ExpertUsage& usage) {
  std::map<std::string, Balance> experts;
  for (const auto& [bank, counts] : usage) {
    experts[bank] = balance_of(counts);
  }
  return experts;
}

}  // namespace headroom::train
