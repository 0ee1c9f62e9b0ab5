// The grouped product in float32: blocks of rows are gathered, multiplied and forgotten, on all threads at once.
#pragma once

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

struct ExpertGradients {
  at::Tensor input, bank, weight;  // weight undefined without weights
};

at::Tensor expert_linear_blocks(const ExpertLinearInputs& in);
ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad, const ExpertLinearInputs& in);

}  // namespace headroom::ops
