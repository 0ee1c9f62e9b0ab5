#include "headroom/kernels/cpu/rows.h"

#include <c10/util/BFloat16.h>

#include <algorithm>

namespace headroom::kernels {

template <class T>
void gather_rows(Rows<const T> matrix, const std::int64_t* row, std::int64_t begin, std::int64_t end, T* block) {
  for (std::int64_t i = begin; i < end; ++i) {
    std::copy_n(matrix.data + row[i] * matrix.stride, matrix.width, block + i * matrix.width);
  }
}

template <class T>
void scale_rows(T* block, std::int64_t width, const float* scale, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    T* at = block + i * width;
    for (std::int64_t c = 0; c < width; ++c) {
      at[c] = static_cast<T>(static_cast<float>(at[c]) * scale[i]);
    }
  }
}

template <class T, class Sum>
void scatter_add_rows(Rows<Sum> sum, const std::int64_t* row, const float* scale, std::int64_t begin, std::int64_t end,
                      const T* block) {
  for (std::int64_t i = begin; i < end; ++i) {
    Sum* to = sum.data + row[i] * sum.stride;
    const T* from = block + i * sum.width;
    const Sum factor = scale == nullptr ? Sum{1} : static_cast<Sum>(scale[i]);
    for (std::int64_t c = 0; c < sum.width; ++c) {
      to[c] += factor * static_cast<Sum>(from[c]);
    }
  }
}

template <class T>
void dot_rows(const T* a, const T* b, std::int64_t width, std::int64_t begin, std::int64_t end, float* result) {
  constexpr std::int64_t kLanes = 8;  // independent sums, so that the loop vectorises without reordering one sum
  for (std::int64_t i = begin; i < end; ++i) {
    const T* x = a + i * width;
    const T* y = b + i * width;
    float lanes[kLanes] = {};
    std::int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) {
        lanes[l] += static_cast<float>(x[c + l]) * static_cast<float>(y[c + l]);
      }
    }
    float total = 0.0F;
    for (; c < width; ++c) {
      total += static_cast<float>(x[c]) * static_cast<float>(y[c]);
    }
    for (const float lane : lanes) {
      total += lane;
    }
    result[i] = total;
  }
}

#define HEADROOM_ROWS(T)                                                                                               \
  template void gather_rows<T>(Rows<const T>, const std::int64_t*, std::int64_t, std::int64_t, T*);                    \
  template void scale_rows<T>(T*, std::int64_t, const float*, std::int64_t, std::int64_t);                             \
  template void scatter_add_rows<T, float>(Rows<float>, const std::int64_t*, const float*, std::int64_t, std::int64_t, \
                                           const T*);                                                                  \
  template void dot_rows<T>(const T*, const T*, std::int64_t, std::int64_t, std::int64_t, float*);
HEADROOM_ROWS(float)
HEADROOM_ROWS(c10::BFloat16)
#undef HEADROOM_ROWS

}  // namespace headroom::kernels
