// A loss that keeps a router's choices in balance: what it is called where it is computed, and what weighs it.
#pragma once

#include <string_view>

namespace headroom::config {

struct BalanceLoss {
  std::string_view name;
  double coefficient = 0.0;
};

}  // namespace headroom::config
