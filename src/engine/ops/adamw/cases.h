// The cases of AdamW's step: one number, tensors around a vector's length, and matrices of two layouts.
#pragma once

#include "engine/ops/cases.h"
#include "headroom/ops/adamw.h"

namespace headroom::ops {

// Tensors with the state that a step changes.
struct AdamWLists {
  std::vector<at::Tensor> parameters, gradients, m, v;
};

struct AdamWCase {
  std::vector<std::vector<std::int64_t>> shapes;
  Layout layout = Layout::dense;
  Role role = Role::tested;

  std::string name() const;
  AdamWLists lists(const Setting& setting) const;  // m and v are 0
  // Parameters and moments after 20 steps, end to end.
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<AdamWCase> adamw_cases(Role role);

}  // namespace headroom::ops
