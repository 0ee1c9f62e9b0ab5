// Batch-invariant linear layers for decoding, where rows are requests that come and go: on the CPU a row's result has
// the same bits whatever the other rows are. The ordinary operators choose kernels, and so the order of summation, by
// the number of rows. Not differentiable.
#pragma once

#include <vector>

#include "dense_matmul.h"
#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {

// As linear() and expert_linear(); on other devices they call those.
at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w,
                                  const std::optional<at::Tensor>& b = std::nullopt,
                                  Implementation implementation = Implementation::automatic);
// linear_batch_invariant() of the same rows with each matrix and bias.
std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation = Implementation::automatic);
at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& inputs,
                                         Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
