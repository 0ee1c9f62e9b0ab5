// What a Gaussian's exponent needs of each row besides the product of query and key: its squared length and its
// products with a few directions (Transformer-MGK, Eq. 7-13, shifted keys).
//
// Letters: n rows of e numbers, R directions.
#pragma once

#include <cstdint>

#include "heads.h"

namespace headroom::kernels {

struct RowTerms {
  std::int64_t n, e, directions;
  Rows rows;
  const float* direction;  // [R, e]
};

// terms [1 + R, n]: |t_i|^2, then t_i . direction_r. Sums in float32.
void row_terms(const RowTerms& in, float* terms);

// Gradients of the rows, in their type; those of the directions [R, e] are added to.
void row_terms_backward(const RowTerms& in, const float* d_terms, const RowsOut& d_rows, float* d_direction);

}  // namespace headroom::kernels
