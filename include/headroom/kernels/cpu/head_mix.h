// Heads mixing with each other at every (query, key) pair of one query's row, vectorised along the keys (DCMHA Eq.
// 3-8).
//
// Letters: H heads in C groups of m, R rank, n keys.
//   out_h = f_h a_h skip + f_h a_h (gate_query_h + gate_key_hj) + sum_m f_m a_m fixed_mh
//         + sum_r (sum_m f_m a_m u_rm) w_rh, for the query's factors and for those of key j
#pragma once

#include <cstdint>

namespace headroom::kernels {

constexpr std::int64_t kMostMixedHeads = 32;  // of a group
constexpr std::int64_t kMostMixRank = 8;

struct HeadMix {
  std::int64_t heads, groups, rank;
  bool skip;
  const float* fixed = nullptr;                        // [C, m, m], from, to
  const float *u_query = nullptr, *w_query = nullptr;  // [R, H]
  const float* gate_query = nullptr;                   // [H]
  const float *u_key = nullptr, *w_key = nullptr;      // R H rows of keys
  const float* gate_key = nullptr;                     // H rows of keys
  std::int64_t key_stride = 0;                         // between those rows
};

// Rows of H heads: head h at data + h * stride, n keys (a multiple of 64) each.
struct HeadRows {
  float* data;
  std::int64_t stride;
};

// `a` becomes the mixed row. `factor` [H].
void mix_heads(const HeadMix& mix, const float* factor, HeadRows a, std::int64_t n);

// Where gradients are added; null where the map has no such part.
struct HeadMixGradients {
  float* fixed = nullptr;  // [C, m, m]
  float *u_query = nullptr, *w_query = nullptr, *gate_query = nullptr;
  float *u_key = nullptr, *w_key = nullptr, *gate_key = nullptr;  // rows with the mix's key_stride
};

// `a` is the row before mixing; `d` holds the mixed row's gradient and becomes that of `a`.
void mix_heads_backward(const HeadMix& mix, const float* factor, HeadRows a, HeadRows d, std::int64_t n,
                        const HeadMixGradients& gradients);

}  // namespace headroom::kernels
