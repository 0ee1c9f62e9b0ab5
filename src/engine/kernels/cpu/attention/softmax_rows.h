// The element-wise work on one row of scores or logits, vectorised for the CPU it runs on.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/products/bfloat16.h"

namespace headroom::kernels {

// One row of a block of scores: `n` entries, of which [low, high) are visible.
struct ScoreRow {
  std::int64_t low, high, n;
  float scale;
  const float* position;  // added to the scores before scaling, n entries; null: none
  const float* bias;      // added after scaling (0 or -infinity for padded keys); null: none
};

// scores -> exp(s - max s) with s = (scores + position) * scale + bias; invisible entries become 0. Returns log of the
// sum plus the maximum; `sum` receives the sum. A row that sees nothing: all 0, sum 0, +infinity.
float exp_row(const ScoreRow& row, float* scores, float* sum);

// scores -> p = exp(s - log_sum); d_p -> d_s = p (d_p - d) scale. Invisible entries become 0 in both.
void exp_row_backward(const ScoreRow& row, float log_sum, float d, float* scores, float* d_p);

// scores -> p = exp(s - log_sum); invisible entries become 0.
void probability_row(const ScoreRow& row, float log_sum, float* scores);

// d_p -> p (d_p - sum_j p_j d_p_j) factor, over n entries.
void softmax_backward_row(const float* p, std::int64_t n, float factor, float* d_p);

// One row of the output layer: l = logits + bias (bias may be null). Returns -log softmax(l)[target] and turns the row
// into its gradient times `weight`, weight * (softmax(l) - [c = target]). A negative target: loss 0, gradient 0.
float cross_entropy_row(float* logits, const float* bias, std::int64_t n, std::int64_t target, float weight);

// to = from * factor
void scaled_copy(const float* from, float factor, std::int64_t n, float* to);

// sum of a[i] * b[i]
float dot(const float* a, const float* b, std::int64_t n);
float dot(const BFloat16* a, const BFloat16* b, std::int64_t n);

// The instruction set that the loops run with here ("AVX3", "AVX2", ...).
const char* softmax_rows_target();

}  // namespace headroom::kernels
