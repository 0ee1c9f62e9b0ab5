// The cases of the output layer with its loss: one row, several blocks of rows, large vocabularies.
#pragma once

#include "engine/ops/cases.h"

namespace headroom::ops {

struct CrossEntropyCase {
  std::int64_t n, d, v;
  bool bias = true;
  Layout layout = Layout::dense;
  Role role = Role::tested;
  std::string name() const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<CrossEntropyCase> cross_entropy_cases(Role role);

}  // namespace headroom::ops
