#include "headroom/kernels/cpu/vector_product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_product.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

constexpr std::int64_t kRows = 8;  // of the matrix, read side by side: as many streams as the hardware follows well

// y += the sum over `rows` <= kRows rows.
template <class T>
HWY_INLINE void AddRows(const float* x, std::int64_t rows, Strided<const T> w, std::int64_t begin, std::int64_t end,
                        float* y) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector factor[kRows];
  const T* row[kRows];
  for (std::int64_t r = 0; r < kRows; ++r) {
    factor[r] = r < rows ? hn::Set(d, x[r]) : hn::Zero(d);
    row[r] = w.data + std::min(r, rows - 1) * w.stride;
  }
  for (std::int64_t j = begin; j < end; j += lanes) {
    const std::int64_t left = end - j;
    Vector sum = load_part(y + j, left);
    for (std::int64_t r = 0; r < kRows; ++r) {
      sum = hn::MulAdd(factor[r], load_part(row[r] + j, left), sum);
    }
    store_part(sum, left, y + j);
  }
}

template <class T>
HWY_INLINE void RowsOf(const float* x, std::int64_t n, Strided<const T> w, std::int64_t begin, std::int64_t end,
                       float* y) {
  std::fill(y + begin, y + end, 0.0F);
  for (std::int64_t i = 0; i < n; i += kRows) {
    AddRows(x + i, std::min(kRows, n - i), Strided<const T>{w.data + i * w.stride, w.stride}, begin, end, y);
  }
}

template <class T>
HWY_INLINE void ColumnsOf(const float* x, std::int64_t n, Strided<const T> w, std::int64_t begin, std::int64_t end,
                          float* y) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = begin; j < end; ++j) {
    const T* row = w.data + j * w.stride;
    Vector even = hn::Zero(d), odd = hn::Zero(d);
    for (std::int64_t i = 0; i < n; i += 2 * lanes) {
      even = hn::MulAdd(load_part(x + i, n - i), load_part(row + i, n - i), even);
      if (i + lanes < n) {
        odd = hn::MulAdd(load_part(x + i + lanes, n - i - lanes), load_part(row + i + lanes, n - i - lanes), odd);
      }
    }
    y[j] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  }
}

void Rows(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end, float* y) {
  RowsOf(x, n, w, begin, end, y);
}
void Columns(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end, float* y) {
  ColumnsOf(x, n, w, begin, end, y);
}
void HalfRows(const float* x, std::int64_t n, Strided<const c10::BFloat16> w, std::int64_t begin, std::int64_t end,
              float* y) {
  RowsOf(x, n, w, begin, end, y);
}
void HalfColumns(const float* x, std::int64_t n, Strided<const c10::BFloat16> w, std::int64_t begin, std::int64_t end,
                 float* y) {
  ColumnsOf(x, n, w, begin, end, y);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(HalfRows);
HWY_EXPORT(HalfColumns);

void vector_times_rows(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end,
                       float* y) {
  HWY_DYNAMIC_DISPATCH(Rows)(x, n, w, begin, end, y);
}
void vector_times_columns(const float* x, std::int64_t n, Strided<const float> w, std::int64_t begin, std::int64_t end,
                          float* y) {
  HWY_DYNAMIC_DISPATCH(Columns)(x, n, w, begin, end, y);
}

void vector_times_rows(const float* x, std::int64_t n, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                       float* y) {
  HWY_DYNAMIC_DISPATCH(HalfRows)(x, n, w, begin, end, y);
}
void vector_times_columns(const float* x, std::int64_t n, Strided<const BFloat16> w, std::int64_t begin,
                          std::int64_t end, float* y) {
  HWY_DYNAMIC_DISPATCH(HalfColumns)(x, n, w, begin, end, y);
}

}  // namespace headroom::kernels
#endif
