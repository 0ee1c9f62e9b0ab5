// Vectorised elementwise kernels on one row of scores or logits. The instruction set is chosen at run time.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/matmul/matrix.h"

namespace headroom::kernels {

// One row of a block of n scores. Only [low, high) are visible; the others have probability 0.
struct ScoreRow {
  std::int64_t low, high, n;
  float scale;
  const float* position;  // [n], added to the scores before scaling; optional
  const float* bias;      // [n], added after scaling (0 or -infinity for padded keys); optional
};

// Replaces scores by exp(s - max s), s = (scores + position) * scale + bias; invisible entries become 0. `sum` receives
// their sum. Returns log(sum) + max s. If nothing is visible: all 0, sum 0, returns +infinity.
float exp_row(const ScoreRow& row, float* scores, float* sum);

// Returns the factor of a row's exponentials: 1 / sum, 0 if nothing is visible, NaN if a visible score is.
inline float inverse_of(float sum) {
  return sum == 0.0F ? 0.0F : 1.0F / sum;
}

// Replaces scores by p = exp(s - log_sum), and d_p by the gradient of the scores, p (d_p - delta) scale, where delta =
// sum_j p_j d_p_j. Invisible entries become 0 in both.
void exp_row_backward(const ScoreRow& row, float log_sum, float delta, float* scores, float* d_p);

// Replaces scores by p = exp(s - log_sum); invisible entries become 0.
void probability_row(const ScoreRow& row, float log_sum, float* scores);

// Replaces d_p [n] by p (d_p - sum_j p_j d_p_j) factor.
void softmax_backward_row(const float* p, std::int64_t n, float factor, float* d_p);

// Cross-entropy of one row of the output layer, l = logits + bias (bias may be null). Returns -log softmax(l)[target]
// and replaces the logits by weight * (softmax(l) - onehot(target)). A negative target gives loss 0 and gradient 0.
float cross_entropy_row(float* logits, const float* bias, std::int64_t n, std::int64_t target, float weight);

// to = from * factor; may be in place.
void scaled_copy(const float* from, float factor, std::int64_t n, float* to);

// Dot product of two rows of one type.
float dot(const Rows& a, const Rows& b, std::int64_t n);
inline float dot(const float* a, const float* b, std::int64_t n) {
  return dot(Rows(a, n), Rows(b, n), n);
}

// The instruction set in use, as Highway names it ("AVX3", "AVX2", ...).
const char* simd_target();

}  // namespace headroom::kernels
