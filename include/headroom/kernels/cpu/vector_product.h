// One row times a matrix: every weight is read once, so the memory's rate is what counts.
#pragma once

#include <cstdint>

#include "headroom/kernels/cpu/bfloat16.h"

namespace headroom::kernels {

// y[j] = sum_i x[i] w[i][j] for j in [begin, end): w [n, ...] by rows. Sums in float32.
void vector_times_rows(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end,
                       float* y);
void vector_times_rows(const float* x, std::int64_t n, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                       float* y);

// y[j] = sum_i x[i] w[j][i] for j in [begin, end): the matrix lies transposed, w [..., n] by rows.
void vector_times_columns(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end,
                          float* y);
void vector_times_columns(const float* x, std::int64_t n, Strided<const BFloat16> w, std::int64_t begin,
                          std::int64_t end, float* y);

}  // namespace headroom::kernels
