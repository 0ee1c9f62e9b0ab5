// The gated delta rule and its short convolution.
//
// The rule (Yang et al. 2024, "Gated Delta Networks"): linear attention whose state decays and, for each
// key, replaces the value that it holds by a mixture of that value and a new one.
//
// Letters: B batch, G query and key heads, H value heads (H a multiple of G), T tokens, e channels of keys, w of
// values. For each value head, with its state S [e, w] and the q and k of its query and key head:
//   S <- exp(g_t) S;   u_t = beta_t (v_t - S^T k_t);   S <- S + k_t u_t^T;   o_t = S^T q_t
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// Tokens per chunk of the fused versions. Within a chunk, a triangular system is solved for the u_t.
constexpr std::int64_t kDeltaChunk = 64;

struct GatedDeltaInputs {
  at::Tensor q, k;                  // [B, G, T, e]; the rule is stable for keys of length 1 at most
  at::Tensor v;                     // [B, H, T, w]
  at::Tensor beta;                  // [B, H, T], 0 to 1
  at::Tensor log_decay;             // [B, H, T] g, at most 0
  std::optional<at::Tensor> state;  // [B, H, e, w] before the first token; default: 0. Not differentiated
};

struct GatedDeltaResults {
  at::Tensor o;      // [B, H, T, w] in v's dtype
  at::Tensor state;  // [B, H, e, w] after the last token, in float32 or wider; its gradient is not propagated
};

// Differentiable in q, k, v, beta and log_decay. Computes in float32 or wider. Throws Error if shapes do not match.
GatedDeltaResults gated_delta(const GatedDeltaInputs& inputs,
                              Implementation implementation = Implementation::automatic);

// A causal depthwise convolution over the last few tokens, followed by SiLU: the short convolution of linear attention.
//
// Letters: B batch, G heads, T tokens, e channels of a head, c taps.
//   y_t = silu(sum over j < c of w_j x_{t-c+1+j})   elementwise
struct ShortConvolutionInputs {
  at::Tensor x;                    // [B, G, T, e]
  at::Tensor w;                    // [G, e, c]
  std::optional<at::Tensor> past;  // [B, G, c - 1, e] the inputs before the first token; default: 0. Not differentiated
};

// Returns [B, G, T, e] in x's dtype, differentiable in x and w; sums are in float32 or wider. Throws Error if shapes do
// not match.
at::Tensor short_convolution(const ShortConvolutionInputs& inputs,
                             Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
