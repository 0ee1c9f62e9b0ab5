// The grouped product of any dtype: rows are sorted by matrix, each matrix makes one dense product of the library's.
#pragma once

#include "ops/expert_linear/blocks.h"

namespace headroom::ops {

at::Tensor expert_linear_sorted(const ExpertLinearInputs& in);
ExpertGradients expert_linear_sorted_backward(const at::Tensor& grad, const ExpertLinearInputs& in);

}  // namespace headroom::ops
