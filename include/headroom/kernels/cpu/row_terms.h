// What a Gaussian's exponent needs of each row beside the product of query and key: its squared length and its products
// with a few directions (Transformer-MGK, Eq. 7-13, shifted keys).
//
// Letters: n rows of e numbers, R directions.
#pragma once

#include <cstdint>

#include "headroom/kernels/cpu/bfloat16.h"

namespace headroom::kernels {

template <class T>
struct RowTermsOf {
  std::int64_t n, e, directions;
  Strided<const T> rows;
  const float* direction;  // [R, e]
};
using RowTerms = RowTermsOf<float>;

// terms [1 + R, n]: |t_i|^2, then t_i . direction_r. Sums in float32.
void row_terms(const RowTerms& in, float* terms);
void row_terms(const RowTermsOf<BFloat16>& in, float* terms);

// Gradients of the rows; those of the directions [R, e] are added to.
void row_terms_backward(const RowTerms& in, const float* d_terms, Strided<float> d_rows, float* d_direction);

}  // namespace headroom::kernels
