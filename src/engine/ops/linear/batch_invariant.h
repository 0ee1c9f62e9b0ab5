// Batch-invariant linear layers, for the decode path: a row's result does not depend on the other rows of the call.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "dense_matmul.h"
#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {

// As linear() and expert_linear(): on the CPU a row's result has the same bits whatever the other rows are; on other
// devices they call those. Not differentiable.
at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w,
                                  const std::optional<at::Tensor>& b = std::nullopt,
                                  Implementation implementation = Implementation::automatic);
// linear_batch_invariant() of the same rows with each matrix and bias.
std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation = Implementation::automatic);
at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& inputs,
                                         Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
