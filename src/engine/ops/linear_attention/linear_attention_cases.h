// Cases (operator_cases.h) of linear_attention: one query, equal and unequal lengths, one chunk and several,
// d_value != d_head.
#pragma once

#include "engine/ops/operator_cases.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {

struct LinearAttentionCase {
  std::int64_t b, h, g, t, s, e;
  bool causal = true, normalise = true, padded = true;
  Layout layout = Layout::by_token;
  Role role = Role::tested;
  std::int64_t w = 0;  // d_value; 0: e

  std::string name() const;
  // With an epsilon of about the sum of the weights.
  LinearAttentionInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<LinearAttentionCase> linear_attention_cases(Role role);

LinearAttentionInputs with_leaves(LinearAttentionInputs in, const std::vector<at::Tensor>& leaves);  // q, k, v

}  // namespace headroom::ops
