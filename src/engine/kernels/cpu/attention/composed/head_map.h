// Linear maps across heads at every (query, key) pair, vectorised along the keys (DCMHA Eq. 3-8).
//
// Letters: H heads in C groups of m, R rank, n keys; i query, j key.
//   out_h = a_h skip + a_h (gate_query_ih + gate_key_hj) + sum_m a_m fixed_mh
//         + sum_r (sum_m a_m u_rm) w_rh, once with the factors of query i and once with those of key j
#pragma once

#include <cstdint>

namespace headroom::kernels {

constexpr std::int64_t kMostMappedHeads = 32;  // per group
constexpr std::int64_t kMostMapRank = 8;

struct HeadMap {
  std::int64_t heads, groups, rank;
  bool skip;
  const float* fixed = nullptr;                        // [C, m, m], indexed by source head, then target head
  const float *u_query = nullptr, *w_query = nullptr;  // [R, H] of the first query
  const float* gate_query = nullptr;                   // [H]
  std::int64_t query_stride = 0;                       // between the factors of successive queries
  const float *u_key = nullptr, *w_key = nullptr;      // [R, H, n], one row of keys for each rank and head
  const float* gate_key = nullptr;                     // [H, n]
  std::int64_t key_stride = 0;                         // between the rows of keys
};

// Rows of several queries in all heads: data + h * head_stride + i * row_stride, n keys each, n a multiple of 64.
struct HeadRows {
  float* data;
  std::int64_t head_stride, row_stride, rows;
};

// Intermediate sums saved for the backward pass: sum_m a_m u_rm with the factors of the query (side 0) and of the key
// (side 1). data null: not saved.
struct HeadSums {
  float* data = nullptr;
  std::int64_t stride = 0;  // at least n
  static std::int64_t size(const HeadMap& map, std::int64_t rows, std::int64_t stride) {
    return map.groups * 2 * map.rank * rows * stride;
  }
};

// Writes the mapped rows of `a` to `to`, which may be `a` itself. `factor` [rows, H] first scales `a` in place;
// null: 1.
void map_heads(const HeadMap& map, const float* factor, HeadRows a, HeadRows to, std::int64_t n, HeadSums sums = {});

// Gradients are added to these, laid out as in HeadMap; null if the map has no such part.
struct HeadMapGradients {
  float* fixed = nullptr;
  float *u_query = nullptr, *w_query = nullptr, *gate_query = nullptr;
  float *u_key = nullptr, *w_key = nullptr, *gate_key = nullptr;
};

// `a` holds the rows before the map. `d` holds the gradient of the mapped rows and is overwritten by the gradient of
// `a`. `sums` was written by map_heads().
void map_heads_backward(const HeadMap& map, HeadRows a, HeadRows d, std::int64_t n, HeadSums sums,
                        const HeadMapGradients& gradients);

}  // namespace headroom::kernels
