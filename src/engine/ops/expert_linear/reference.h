#pragma once

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

// A loop over the bank, in operations that autograd knows: the operator's specification.
at::Tensor expert_linear_reference(const ExpertLinearInputs& inputs);

}  // namespace headroom::ops
