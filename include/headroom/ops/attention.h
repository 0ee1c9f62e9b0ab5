// Softmax attention over any mask, with or without Transformer-XL's relative term.
//
// Letters: B batch, H heads, G key/value heads (H a multiple of G), T queries, S keys, e d_head, C offsets.
//   s_ij = scale * (q_i . k_j + p_i . r_delta),  delta = j - (S - T + i)   (Transformer-XL; SwitchHead section 2.2)
//   o_i  = sum_j softmax_j(s_ij over visible j) v_j;  a row without a visible key gives 0
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct AttentionMask {
  bool causal = true;                    // key j is visible to query i iff j <= S - T + i
  std::int64_t window = 0;               // causal only: at most so many keys, the query's own included; 0: all
  std::optional<at::Tensor> valid_keys;  // [B, S] bool
};

struct AttentionInputs {
  at::Tensor q;     // [B, H, T, e]
  at::Tensor k, v;  // [B, G, S, e]
  double scale = 1.0;
  AttentionMask mask;
  // The relative term: both or neither.
  std::optional<at::Tensor> q_position;  // p, [B, H, T, e]
  std::optional<at::Tensor> r;  // [H, C, e], row c belongs to delta = c - (S - 1); C = S when causal, else S + T - 1
};

// [B, H, T, e], differentiable in q, k, v, q_position and r. Throws Error on shapes that do not fit.
at::Tensor attention(const AttentionInputs& inputs, Implementation implementation = Implementation::automatic);

// The same in plain tensor operations; `probabilities` receives softmax's result [B, H, T, S] when given.
at::Tensor attention_reference(const AttentionInputs& inputs, at::Tensor* probabilities = nullptr);

// Why the fused version does not apply; empty when it does.
std::string attention_fused_refusal(const AttentionInputs& inputs);

}  // namespace headroom::ops
