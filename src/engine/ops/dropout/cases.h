// The cases of dropout: sizes around a vector's length, and more than one thread's share.
#pragma once

#include "engine/ops/cases.h"

namespace headroom::ops {

struct DropoutCase {
  std::int64_t n;  // rows of 3 numbers
  bool relu;
  Layout layout = Layout::dense;
  std::string name() const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<DropoutCase> dropout_cases();

}  // namespace headroom::ops
