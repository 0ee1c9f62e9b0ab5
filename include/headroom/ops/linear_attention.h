// Linear attention: weights are dot products of feature vectors, summed through a state whose size does not depend on
// the sequence length. No T x S matrix is formed.
//
// Letters: B batch, H heads, G key/value heads (H a multiple of G), T queries, S keys, e d_head, w d_value.
//   a_ij = factor * q_i . k_j over visible j;  o_i = output_factor * sum_j a_ij v_j / (sum_j a_ij + epsilon)
// q and k must be feature vectors already (elu + 1 of Katharopoulos et al., mixtures of Transformer-MGK Eq. 13). If the
// denominator is 0, o_i is 0.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// Causal attention processes queries in chunks of this length. Within a chunk, queries and keys are compared directly;
// earlier keys contribute through the state.
constexpr std::int64_t kLinearChunk = 64;

struct LinearAttentionInputs {
  at::Tensor q;                          // [B, H, T, e]
  at::Tensor k, v;                       // [B, G, S, e], [B, G, S, w]
  bool causal = true;                    // key j is visible to query i iff j <= S - T + i
  std::optional<at::Tensor> valid_keys;  // [B, S] bool
  double factor = 1.0, output_factor = 1.0;
  bool normalise = true;
  double epsilon = 0.0;  // used with normalise only
};

// The recurrent state: sums over all keys so far; undefined before the first key.
struct LinearState {
  at::Tensor kv;  // sum_j k_j v_j^T [B, G, e, w]
  at::Tensor k;   // sum_j k_j [B, G, e]
};

// Returns [B, H, T, w] in v's dtype, differentiable in q, k and v. With a `state` (causal only), the keys continue the
// sequence summarised by the state, which is updated. Sums are in float32 or wider. Throws Error if shapes do not
// match.
at::Tensor linear_attention(const LinearAttentionInputs& inputs,
                            Implementation implementation = Implementation::automatic, LinearState* state = nullptr);

}  // namespace headroom::ops
