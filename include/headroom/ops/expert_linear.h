// A linear layer with routed experts: gather, grouped matrix multiplication, weighting and scatter in one operator.
//
// Letters: N tokens, H heads (or slots), K experts per token and head, X matrices in the bank.
//   y[n,h] = sum_k weight[n,h,k] * input[n,h] * bank[index[n,h,k]]        (per head: SwitchHead Eq. 7, 8 for q, k, v)
//   y[n]   = sum_h sum_k ...                                              (heads summed: SwitchHead Eq. 9 for o)
// Used by expert projections, expert MLPs (H = top_k, K = 1) and routed heads.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

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

}  // namespace headroom::ops
