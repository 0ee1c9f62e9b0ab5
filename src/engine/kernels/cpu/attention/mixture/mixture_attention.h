// Blocked attention over mixtures of keys (Transformer-MGK): a weight is a sum of R exponentials, one per component,
// whose exponents are affine functions of query-key dot products.
//
// Letters as in attention.h; R components, P dot products: 1 if the components' keys differ by a shift, else R.
//   s_r(i, j) = factor_r q_i . k_(r or 0)j + query_term_ri + key_term_rj
//   p_ij = sum_r exp(s_r) / (sum_j sum_r exp(s_r) + epsilon + exp(sink)) over visible keys,  o_i = sum_j p_ij v_j
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/cpu/attention/attention.h"

namespace headroom::kernels {

struct MixtureTensors {
  Heads q;                          // [B, H, T, e]
  Heads v;                          // [B, G, S, w]
  std::vector<Heads> keys;          // P of [B, G, S, e]
  std::vector<float> factor;        // R
  const float* query_term;          // [B, H, R, T]
  const float* key_term;            // [B, G or H, R, S]
  std::int64_t key_term_heads;      // G or H
  const float* key_bias = nullptr;  // [B, S], 0 or -infinity
  const float* sink = nullptr;      // [H]; null: none
  float epsilon = 0.0F;
  bool maximum = false;  // use the largest component's exponential instead of the sum
};

// Computes heads [begin, end) of B * H; head h of sequence b has index b * H + h.
void mixture_attention_forward(const AttentionShape& shape, const MixtureTensors& in, const AttentionResult& out,
                               std::int64_t begin, std::int64_t end);
// The decode path: the same without packing keys and values.
void mixture_attention_decode(const AttentionShape& shape, const MixtureTensors& in, const AttentionResult& out,
                              std::int64_t begin, std::int64_t end);

void mixture_attention_backward(const AttentionShape& shape, const MixtureTensors& in, const AttentionGradients& out,
                                std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
