// Maps over heads at every (query, key) pair, vectorised along the keys (DCMHA Eq. 3-8).
//
// Letters: H heads in C groups of m, R rank, n keys; i query, j key.
//   out_h = a_h skip + a_h (gate_query_ih + gate_key_hj) + sum_m a_m fixed_mh
//         + sum_r (sum_m a_m u_rm) w_rh, for the factors of query i and for those of key j
#pragma once

#include <cstdint>

namespace headroom::kernels {

constexpr std::int64_t kMostMappedHeads = 32;  // of a group
constexpr std::int64_t kMostMapRank = 8;

struct HeadMap {
  std::int64_t heads, groups, rank;
  bool skip;
  const float* fixed = nullptr;                        // [C, m, m], from, to
  const float *u_query = nullptr, *w_query = nullptr;  // [R, H] of the first query
  const float* gate_query = nullptr;                   // [H]
  std::int64_t query_stride = 0;                       // from one query's factors to the next one's
  const float *u_key = nullptr, *w_key = nullptr;      // R H rows of keys
  const float* gate_key = nullptr;                     // H rows of keys
  std::int64_t key_stride = 0;                         // between those rows
};

// Some queries' rows of all heads: data + h * head_stride + i * row_stride, n keys (a multiple of 64) each.
struct HeadRows {
  float* data;
  std::int64_t head_stride, row_stride, rows;
};

// What a map leaves for its backward pass: sum_m a_m u_rm with the factors of the query (side 0) and of the key (side
// 1). Null: not kept.
struct HeadSums {
  float* data = nullptr;
  std::int64_t stride = 0;  // at least n
  static std::int64_t size(const HeadMap& map, std::int64_t rows, std::int64_t stride) {
    return map.groups * 2 * map.rank * rows * stride;
  }
};

// `to` becomes the mapped rows of `a`, which it may be. `factor` [rows, H] multiplies `a` first, in its place; null: 1.
void map_heads(const HeadMap& map, const float* factor, HeadRows a, HeadRows to, std::int64_t n, HeadSums sums = {});

// Where gradients are added; null where the map has no such part. Laid out as in HeadMap.
struct HeadMapGradients {
  float* fixed = nullptr;
  float *u_query = nullptr, *w_query = nullptr, *gate_query = nullptr;
  float *u_key = nullptr, *w_key = nullptr, *gate_key = nullptr;
};

// `a` holds the rows before the map, `d` the mapped rows' gradients, which become those of `a`; `sums` is what the map
// left.
void map_heads_backward(const HeadMap& map, HeadRows a, HeadRows d, std::int64_t n, HeadSums sums,
                        const HeadMapGradients& gradients);

}  // namespace headroom::kernels
