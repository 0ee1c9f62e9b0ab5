// Linear layers: dense, with routed experts, and the output layer together with its cross-entropy.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// A dense linear layer, forward and backward, using the fastest matrix multiplication among torch's libraries. Returns
// x w + b [N, d_out] for x [N, d_in], w [d_in, d_out] of any strides and an optional b [d_out]. Differentiable in all
// three. w and b must have the same dtype, which is also the result's; x is converted to it, but saved unconverted for
// backward. The fused version supports float32 and bfloat16 on the CPU, and CUDA; otherwise `automatic` uses the
// reference and `fused` throws UserError. Throws Error if shapes do not match.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b = std::nullopt,
                  Implementation implementation = Implementation::automatic);

// A linear layer with routed experts: gather, grouped matrix multiplication, weighting and scatter in one operator.
//
// Letters: N tokens, H heads (or slots), K experts per token and head, X matrices in the bank.
//   y[n,h] = sum_k weight[n,h,k] * input[n,h] * bank[index[n,h,k]]        (per head: SwitchHead Eq. 7, 8 for q, k, v)
//   y[n]   = sum_h sum_k ...                                              (heads summed: SwitchHead Eq. 9 for o)
// Used by expert projections, expert MLPs (H = top_k, K = 1) and routed heads.
struct ExpertLinearInputs {
  at::Tensor input;                  // [N, d_in], shared by the heads, or [N, H, d_in]
  at::Tensor bank;                   // [X, d_in, d_out], same dtype as input
  at::Tensor index;                  // [N, H, K] int64 in [0, X); the K indices of one (n, h) must be distinct
  std::optional<at::Tensor> weight;  // [N, H, K] of any floating dtype; if not set: all 1
  bool sum_heads = false;            // result [N, d_out] instead of [N, H, d_out]
};

// Returns [N, H, d_out], or [N, d_out] with sum_heads, in the input's dtype. Differentiable in input, bank and weight.
// On devices other than CPU and CUDA `automatic` uses the reference and `fused` throws UserError. Throws Error if
// shapes do not match.
at::Tensor expert_linear(const ExpertLinearInputs& inputs, Implementation implementation = Implementation::automatic);

// Output layer and cross-entropy in one operator: logits [N, V] exist only for one block of rows at a time.
//   loss = mean over targets >= 0 of  -log softmax(x W + b)[target]
//
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
