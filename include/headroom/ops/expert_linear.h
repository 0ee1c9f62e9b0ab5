// Products with a matrix chosen per token: select, gather, grouped product, weight, scatter, in one operator.
//
// Letters: N tokens, H heads (or slots), K choices a head, X matrices in the bank.
//   y[n,h] = sum_k weight[n,h,k] * input[n,h] * bank[index[n,h,k]]        (per head: SwitchHead Eq. 7, 8 for q, k, v)
//   y[n]   = sum_h sum_k ...                                              (heads summed: SwitchHead Eq. 9 for o)
// It serves expert projections, expert MLPs (H = chosen experts, K = 1) and routed heads alike.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct ExpertLinearInputs {
  at::Tensor input;                  // [N, d_in] the same for every head, or [N, H, d_in]
  at::Tensor bank;                   // [X, d_in, d_out], same dtype as input
  at::Tensor index;                  // [N, H, K] int64 in [0, X); the K of one (n, h) differ from each other
  std::optional<at::Tensor> weight;  // [N, H, K] in any floating type; without it: all 1
  bool sum_heads = false;            // result [N, d_out] instead of [N, H, d_out]
};

// Differentiable in input, bank and weight; the result has the input's dtype. The fused version runs on CPU
// tensors; elsewhere `automatic` takes the reference and `fused` throws UserError. Throws Error on shapes that do not
// fit.
at::Tensor expert_linear(const ExpertLinearInputs& inputs, Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
