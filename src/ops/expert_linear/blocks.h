// The grouped product: blocks of rows are gathered, multiplied and forgotten, on all threads at once. Operands in
// float32 or bfloat16, sums in float32.
#pragma once

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

struct ExpertGradients {
  at::Tensor input, bank;  // of the inputs' dtype
  at::Tensor weight;       // float32; undefined without weights
};

at::Tensor expert_linear_blocks(const ExpertLinearInputs& in);
ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad, const ExpertLinearInputs& in);

}  // namespace headroom::ops
