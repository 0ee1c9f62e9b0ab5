// Blocked attention over mixtures of keys (Transformer-MGK): a weight is a sum over R components of exponentials, each
// an affine function of a product of query and key.
//
// Letters as in attention.h; R components, P products: 1 when components share a key up to a shift, else R.
//   s_r(i, j) = factor_r q_i . k_(r or 0)j + query_term_ri + key_term_rj
//   p_ij = sum_r exp(s_r) / (sum_j sum_r exp(s_r) + epsilon) over visible keys,  o_i = sum_j p_ij v_j
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"

namespace headroom::kernels {

struct MixtureTensors {
  Heads q;                          // [B, H, T, e]
  Heads v;                          // [B, G, S, w]
  std::vector<Heads> keys;          // P of [B, G, S, e]
  std::vector<float> factor;        // R
  const float* query_term;          // [B, H, R, T]
  const float* key_term;            // [B, G, R, S]
  const float* key_bias = nullptr;  // [B, S], 0 or -infinity
  float epsilon = 0.0F;
  bool maximum = false;  // the largest of the components' exponentials instead of their sum
};

// Heads [begin, end) of the B * H there are, counted b * H + h.
void mixture_attention_forward(const AttentionShape& shape, const MixtureTensors& in, const AttentionResult& out,
                               std::int64_t begin, std::int64_t end);
// The same as attention_few_queries(): keys and values are read where they lie.
void mixture_attention_few_queries(const AttentionShape& shape, const MixtureTensors& in, const AttentionResult& out,
                                   std::int64_t begin, std::int64_t end);

struct MixtureGradients {
  Heads d_o, o;          // given, in one type
  const float* log_sum;  // given
  HeadsOut d_q, d_v;     // written; keys and values for each query head
  std::vector<HeadsOut> d_keys;
  float* d_query_term;  // [B, H, R, T]
  float* d_key_term;    // [B, H, R, S]
};

void mixture_attention_backward(const AttentionShape& shape, const MixtureTensors& in, const MixtureGradients& out,
                                std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
