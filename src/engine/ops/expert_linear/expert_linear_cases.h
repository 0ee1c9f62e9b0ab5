// Cases (operator_cases.h) of expert_linear: experts per head and per slot, weighted and summed.
#pragma once

#include "engine/ops/operator_cases.h"
#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

struct ExpertLinearCase {
  std::int64_t n, heads, choices, experts, d_in, d_out;
  bool per_head = false, sum_heads = false, weighted = true;
  bool slots = false;      // heads are slots that share one bank, K = 1
  const char* label = "";  // the layer of a published model with these sizes
  Layout layout = Layout::dense;
  Role role = Role::tested;

  std::string name() const;
  ExpertLinearInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<ExpertLinearCase> expert_linear_cases(Role role);

}  // namespace headroom::ops
