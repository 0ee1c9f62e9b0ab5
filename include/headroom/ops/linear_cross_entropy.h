// Output layer and cross-entropy in one: the N x V matrix of logits exists only a block of rows at a time.
//   loss = mean over targets >= 0 of  -log softmax(x W + b)[target]
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// `x` [N, d], `w` [d, V] (any strides, e.g. a transposed embedding), `b` [V] if there is one, `target` [N] int64;
// rows with a negative target do not count. Returns the mean in nats, a scalar in float32 (float64 for float64
// input); 0 when no row counts. Differentiable in x, w and b. The fused version computes its gradients in the forward
// pass (any device). Throws Error on shapes that do not fit or a target >= V.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                const at::Tensor& target, Implementation implementation = Implementation::automatic);

// Without gradients, each loss by itself: [M] in nats, of the M rows whose target is at least 0, in their order. The
// same type and errors.
at::Tensor token_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                               const at::Tensor& target, Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
