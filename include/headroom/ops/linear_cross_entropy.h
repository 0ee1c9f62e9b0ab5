// Output layer and cross-entropy in one operator: logits [N, V] exist only for one block of rows at a time.
//   loss = mean over targets >= 0 of  -log softmax(x W + b)[target]
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// `x` is [N, d], `w` [d, V] of any strides (e.g. a transposed embedding), optional `b` [V], `target` [N] int64; rows
// with a negative target are ignored. Returns the mean loss in nats, a float32 scalar (float64 for float64 input), 0 if
// all rows are ignored. Differentiable in x, w and b. The fused version computes the gradients in the forward pass, on
// any device. Throws Error if shapes do not match, and for a target >= V on the CPU.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                const at::Tensor& target, Implementation implementation = Implementation::automatic);

// Returns the losses of the M rows with a target >= 0, in order: [M] in nats, without gradients. Dtype and errors as
// above.
at::Tensor token_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                               const at::Tensor& target, Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
