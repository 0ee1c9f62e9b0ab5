// The cases of linear attention: one query, equal and unequal lengths, within a block and across, values of another
// width than keys.
#pragma once

#include "engine/ops/cases.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {

struct LinearAttentionCase {
  std::int64_t b, h, g, t, s, e;
  bool causal = true, normalise = true, padded = true;
  Layout layout = Layout::by_token;
  Role role = Role::tested;
  std::int64_t w = 0;  // width of a value; 0: e

  std::string name() const;
  // With an epsilon as large as the sum of the weights, about.
  LinearAttentionInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<LinearAttentionCase> linear_attention_cases(Role role);

LinearAttentionInputs with_leaves(LinearAttentionInputs in, const std::vector<at::Tensor>& leaves);  // q, k, v

}  // namespace headroom::ops
