// A row, or a few, times a matrix: every weight is read once, so the memory's rate is what counts. What a row gives
// does not depend on the other rows: it is that of the row alone, bit for bit.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace headroom::kernels {

// A row of n numbers after another; those of several also as columns, [n, count] without gaps, where many products take
// them: made by side_by_side().
struct FewRows {
  const float* data;
  std::int64_t count, n, stride;
  const float* columns = nullptr;

  FewRows part(std::int64_t first, std::int64_t size) const {
    return {data + first, count, size, stride, columns == nullptr ? nullptr : columns + first * count};
  }
};
void side_by_side(const FewRows& x, float* columns);

// y[r][j] = sum_i x[r][i] w[i][j] for j in [begin, end): w [n, ...] by rows. Sums in float32.
void rows_times_rows(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end, Strided<float> y);
void rows_times_rows(const FewRows& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                     Strided<float> y);

// y[r][j] = sum_i x[r][i] w[j][i] for j in [begin, end): the matrix lies transposed, w [..., n] by rows.
void rows_times_columns(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end,
                        Strided<float> y);
void rows_times_columns(const FewRows& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                        Strided<float> y);

// The same of one row x [n].
template <class T>
void vector_times_rows(const float* x, std::int64_t n, Strided<const T> w, std::int64_t begin, std::int64_t end,
                       float* y) {
  rows_times_rows({x, 1, n, 0}, w, begin, end, {y, 0});
}
template <class T>
void vector_times_columns(const float* x, std::int64_t n, Strided<const T> w, std::int64_t begin, std::int64_t end,
                          float* y) {
  rows_times_columns({x, 1, n, 0}, w, begin, end, {y, 0});
}

}  // namespace headroom::kernels
