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
HWY_INLINE void RowsOf(const FewRows& x, Strided<const T> w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    std::fill(y.data + r * y.stride + begin, y.data + r * y.stride + end, 0.0F);
  }
  for (std::int64_t i = 0; i < x.n; i += kRows) {
    const Strided<const T> some{w.data + i * w.stride, w.stride};
    for (std::int64_t r = 0; r < x.count; ++r) {
      AddRows(x.data + r * x.stride + i, std::min(kRows, x.n - i), some, begin, end, y.data + r * y.stride);
    }
  }
}

template <class T>
HWY_INLINE float Dot(const float* x, std::int64_t n, const T* row) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector even = hn::Zero(d), odd = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += 2 * lanes) {
    even = hn::MulAdd(load_part(x + i, n - i), load_part(row + i, n - i), even);
    if (i + lanes < n) {
      odd = hn::MulAdd(load_part(x + i + lanes, n - i - lanes), load_part(row + i + lanes, n - i - lanes), odd);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

template <class T>
HWY_INLINE void ColumnsOf(const FewRows& x, Strided<const T> w, std::int64_t begin, std::int64_t end,
                          Strided<float> y) {
  for (std::int64_t j = begin; j < end; ++j) {
    for (std::int64_t r = 0; r < x.count; ++r) {
      y.data[r * y.stride + j] = Dot(x.data + r * x.stride, x.n, w.data + j * w.stride);
    }
  }
}

void Rows(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  RowsOf(x, w, begin, end, y);
}
void Columns(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  ColumnsOf(x, w, begin, end, y);
}
void HalfRows(const FewRows& x, Strided<const c10::BFloat16> w, std::int64_t begin, std::int64_t end,
              Strided<float> y) {
  RowsOf(x, w, begin, end, y);
}
void HalfColumns(const FewRows& x, Strided<const c10::BFloat16> w, std::int64_t begin, std::int64_t end,
                 Strided<float> y) {
  ColumnsOf(x, w, begin, end, y);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(HalfRows);
HWY_EXPORT(HalfColumns);

void rows_times_rows(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(Rows)(x, w, begin, end, y);
}
void rows_times_columns(const FewRows& x, Strided<const float> w, std::int64_t begin, std::int64_t end,
                        Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(Columns)(x, w, begin, end, y);
}

void rows_times_rows(const FewRows& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                     Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(HalfRows)(x, w, begin, end, y);
}
void rows_times_columns(const FewRows& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                        Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(HalfColumns)(x, w, begin, end, y);
}

}  // namespace headroom::kernels
#endif
