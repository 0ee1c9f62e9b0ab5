// Moving rows between a matrix and the dense block that a product wants.
#pragma once

#include <cstdint>

namespace headroom::kernels {

// Rows of `width` elements each, row i at data + i * stride.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride, width;
};

// block[i] = matrix[row[i]] for i in [begin, end); `block` has stride `width`.
template <class T>
void gather_rows(Rows<const T> matrix, const std::int64_t* row, std::int64_t begin, std::int64_t end, T* block);

// block[i] *= scale[i]
template <class T>
void scale_rows(T* block, std::int64_t width, const float* scale, std::int64_t begin, std::int64_t end);

// sum[row[i]] += scale[i] * block[i]; rows within [begin, end) must differ. `scale` may be null (1).
template <class T, class Sum>
void scatter_add_rows(Rows<Sum> sum, const std::int64_t* row, const float* scale, std::int64_t begin, std::int64_t end,
                      const T* block);

// result[i] = a[i] . b[i], accumulated in float.
template <class T>
void dot_rows(const T* a, const T* b, std::int64_t width, std::int64_t begin, std::int64_t end, float* result);

}  // namespace headroom::kernels
