// Products for decoding, where rows are sequences that come and go: on the CPU each row is what it is alone, bit for
// bit, whatever the other rows are. Ordinary products take their kernels, and the order of their sums, by the number of
// rows. Not differentiable.
#pragma once

#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {

// linear() and expert_linear(), whose letters and errors they have; on other devices they are these.
at::Tensor linear_by_row(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b = std::nullopt,
                         Implementation implementation = Implementation::automatic);
at::Tensor expert_linear_by_row(const ExpertLinearInputs& inputs,
                                Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
