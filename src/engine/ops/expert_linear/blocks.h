// The grouped product: blocks of rows are gathered, multiplied and discarded, on all threads at once. Operands in
// float32 or bfloat16, sums in float32.
#pragma once

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

struct ExpertGradients {
  at::Tensor input, bank;  // of the inputs' dtype
  at::Tensor weight;       // float32; undefined without weights
};

// `by_row`: each row as it is alone.
at::Tensor expert_linear_blocks(const ExpertLinearInputs& in, bool by_row = false);
// By row, on the operands that the operator takes on this CPU: each row as it is alone, bit for bit.
at::Tensor few_expert_products(const ExpertLinearInputs& in);

ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad, const ExpertLinearInputs& in);

}  // namespace headroom::ops
