// The element-wise work on one row of scores of a mixture, vectorised for the CPU it runs on.
#pragma once

#include <cstdint>

#include "headroom/kernels/cpu/softmax_rows.h"

namespace headroom::kernels {

// scores = factor * product + key_term + query_term (+ row.bias) over the row's visible entries; their maximum.
struct AffineRow {
  float factor, query_term;
  const float* key_term;
};
float affine_row(const ScoreRow& row, const AffineRow& affine, const float* product, float* scores);

// Component tiles: row r at scores + r * stride. The first one becomes sum_r exp(s_r - shift), invisible entries 0; the
// sum of those.
float mixture_exp_row(const ScoreRow& row, std::int64_t components, std::int64_t stride, float shift, float* scores);

// One row's way back. Scores become factor_r d_s_r with d_s_r = exp(s_r - log_sum) (d_p - mean), added up in the first
// row if the components share their product; `p` receives sum_r exp(s_r - log_sum). Invisible entries become 0.
struct MixtureBackwardRow {
  std::int64_t components, stride;
  bool shared;
  float log_sum, mean;
  const float* factor;  // [R]
  const float* d_p;
  float* d_query_term;  // [R], entry r at r * query_stride, written
  std::int64_t query_stride;
  float* d_key_term;  // [R] rows, row r at r * key_stride, added to
  std::int64_t key_stride;
};
void mixture_backward_row(const ScoreRow& row, const MixtureBackwardRow& back, float* scores, float* p);

}  // namespace headroom::kernels
