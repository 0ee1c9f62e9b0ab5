// The element-wise work on one row of scores of a mixture, vectorised for the CPU it runs on.
#pragma once

#include <cstdint>

#include "softmax_rows.h"

namespace headroom::kernels {

constexpr std::int64_t kMostComponents = 64;

// s_r = factor[r] product_r + query_term[r] + key_term_r (+ the bias of the score row), r < R. The weight of a key is
// sum_r exp(s_r), or that of the largest s_r alone.
struct MixtureRow {
  std::int64_t components;
  bool maximum;
  const float* product;         // [R] rows, row r at r * product_stride
  std::int64_t product_stride;  // 0: one product for all
  const float* factor;          // [R]
  const float* query_term;      // [R], entry r at r * query_stride
  std::int64_t query_stride;
  const float* key_term;  // [R] rows, row r at r * key_stride
  std::int64_t key_stride;
};

// `to`, which may be the first product, becomes the weights times exp(-most), invisible entries 0. Returns their sum;
// `most` receives the largest visible s_r, -infinity if nothing is visible.
float mixture_exp_row(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to);

struct MixtureBackwardRow {
  float log_sum, mean;
  const float* d_p;
  float* d_query_term;  // as query_term, written
  float* d_key_term;    // [R] rows, row r at r * key_stride, added to
  std::int64_t key_stride;
};

// One row's backward pass. With d_s_r = p_r (d_p - mean), p_r = exp(s_r - log_sum), row r of `d_product` (they may be
// the products) becomes factor_r d_s_r, summed over r if there is one product for all; `p` becomes the sum of p_r. Of a
// maximum, those s_r that reach it share its p evenly, and the others have none. Invisible entries become 0 in both.
void mixture_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                          float* d_product, float* p);

// The content of a mixture's scores: to_j = log sum_r exp(s_rj), or the largest s_rj, over the row's visible entries;
// the others become 0. `to` may not be a product.
void mixture_content_row(const ScoreRow& row, const MixtureRow& mixture, float* to);

// Its backward pass: back.d_p holds the contents' gradients, log_sum and mean are not used. `d_product` as above.
void mixture_content_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                                  float* d_product);

}  // namespace headroom::kernels
