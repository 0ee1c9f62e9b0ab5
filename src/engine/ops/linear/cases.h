// The cases of the dense product: one row, few and many, with and without a bias.
#pragma once

#include "engine/ops/cases.h"

namespace headroom::ops {

struct LinearCase {
  std::int64_t n, d_in, d_out;
  bool bias = true;
  Layout layout = Layout::dense;
  std::string name() const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<LinearCase> linear_cases();

}  // namespace headroom::ops
