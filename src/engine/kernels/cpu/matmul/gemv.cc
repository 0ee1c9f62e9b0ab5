#include "gemv.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/matmul/gemv.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

constexpr std::int64_t kRows = 8;  // matrix rows read in parallel: as many streams as hardware prefetchers handle well

// y[j] += sum over `rows` <= kRows rows of x[r] w[r][j].
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

constexpr std::int64_t kDeep = 32;  // matrix rows that all vectors use before the next ones are read

// Two SIMD vectors of columns for R input vectors: y += the sum over n matrix rows, in the same order as AddRows(), so
// that both give the same bits. Element i of input vector r is x[i * x_stride + r].
template <int R, class T>
HWY_INLINE void AddColumns(const float* x, std::int64_t x_stride, std::int64_t n, Strided<const T> w,
                           Strided<float> y) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector low[R], high[R];
  for (int r = 0; r < R; ++r) {
    low[r] = hn::LoadU(d, y.data + r * y.stride);
    high[r] = hn::LoadU(d, y.data + r * y.stride + lanes);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const T* row = w.data + i * w.stride;
    const Vector first = load_part(row, lanes), second = load_part(row + lanes, lanes);
    hwy::Prefetch(row + kDeep * w.stride);
    hwy::Prefetch(row + kDeep * w.stride + lanes);
    for (int r = 0; r < R; ++r) {
      const Vector factor = hn::Set(d, x[i * x_stride + r]);
      low[r] = hn::MulAdd(factor, first, low[r]);
      high[r] = hn::MulAdd(factor, second, high[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    hn::StoreU(low[r], d, y.data + r * y.stride);
    hn::StoreU(high[r], d, y.data + r * y.stride + lanes);
  }
}

// Computes one output element of R input vectors: their dot products with one row of the transposed matrix.
template <int R, class T>
HWY_INLINE void Dots(const float* x, std::int64_t x_stride, std::int64_t n, const T* row, float* y,
                     std::int64_t y_stride) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector even[R], odd[R];
  for (int r = 0; r < R; ++r) {
    even[r] = odd[r] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < n; i += 2 * lanes) {
    const std::int64_t left = n - i;
    const Vector first = load_part(row + i, left);
    for (int r = 0; r < R; ++r) {
      even[r] = hn::MulAdd(load_part(x + r * x_stride + i, left), first, even[r]);
    }
    if (left > lanes) {
      const Vector second = load_part(row + i + lanes, left - lanes);
      for (int r = 0; r < R; ++r) {
        odd[r] = hn::MulAdd(load_part(x + r * x_stride + i + lanes, left - lanes), second, odd[r]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    y[r * y_stride] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[r], odd[r])));
  }
}

// Calls body.run<R>(first) for groups of R input vectors that fit into the registers.
template <class Body>
HWY_INLINE void ForGroups(std::int64_t count, const Body& body) {
  std::int64_t r = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; r + 8 <= count; r += 8) {
    body.template run<8>(r);
  }
#endif
  for (; r + 4 <= count; r += 4) {
    body.template run<4>(r);
  }
  for (; r + 2 <= count; r += 2) {
    body.template run<2>(r);
  }
  for (; r < count; ++r) {
    body.template run<1>(r);
  }
}

// Adds rows [i, i + n) of the matrix to columns [begin, end), whose number is a multiple of two SIMD vectors.
template <class T>
struct AddColumnsOf {
  const GemvInput& x;
  std::int64_t i, n, begin, end;
  Strided<const T> w;
  Strided<float> y;
  template <int R>
  HWY_INLINE void run(std::int64_t first) const {
    float own[kDeep * R];
    const float* columns = own;
    if (x.columns == nullptr) {
      for (std::int64_t k = 0; k < n; ++k) {
        for (int r = 0; r < R; ++r) {
          own[k * R + r] = x.data[(first + r) * x.stride + i + k];
        }
      }
    } else {
      columns = x.columns + i * x.count + first;
    }
    const std::int64_t stride = x.columns == nullptr ? R : x.count;
    const auto wide = 2 * static_cast<std::int64_t>(hn::Lanes(Tag()));
    for (std::int64_t j = begin; j < end; j += wide) {
      AddColumns<R>(columns, stride, n, Strided<const T>{w.data + i * w.stride + j, w.stride},
                    {y.data + first * y.stride + j, y.stride});
    }
  }
};

template <class T>
struct DotsOf {
  const GemvInput& x;
  const T* row;
  Strided<float> y;
  template <int R>
  HWY_INLINE void run(std::int64_t r) const {
    Dots<R>(x.data + r * x.stride, x.stride, x.n, row, y.data + r * y.stride, y.stride);
  }
};

template <class T>
HWY_INLINE void MultiplyRows(const GemvInput& x, Strided<const T> w, std::int64_t begin, std::int64_t end,
                             Strided<float> y) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    std::fill(y.data + r * y.stride + begin, y.data + r * y.stride + end, 0.0F);
  }
  const auto wide = 2 * static_cast<std::int64_t>(hn::Lanes(Tag()));
  const std::int64_t whole = x.count == 1 ? begin : begin + (end - begin) / wide * wide;
  for (std::int64_t i = 0; i < x.n; i += kDeep) {
    const std::int64_t deep = std::min(kDeep, x.n - i);
    if (begin < whole) {
      ForGroups(x.count, AddColumnsOf<T>{x, i, deep, begin, whole, w, y});
    }
    for (std::int64_t k = i; k < i + deep && whole < end; k += kRows) {
      const Strided<const T> some{w.data + k * w.stride, w.stride};
      for (std::int64_t r = 0; r < x.count; ++r) {
        AddRows(x.data + r * x.stride + k, std::min(kRows, x.n - k), some, whole, end, y.data + r * y.stride);
      }
    }
  }
}

template <class T>
HWY_INLINE void MultiplyColumns(const GemvInput& x, Strided<const T> w, std::int64_t begin, std::int64_t end,
                                Strided<float> y) {
  if (x.count == 1) {  // attention's rows are short: skip the grouping
    for (std::int64_t j = begin; j < end; ++j) {
      Dots<1>(x.data, x.stride, x.n, w.data + j * w.stride, y.data + j, y.stride);
    }
    return;
  }
  for (std::int64_t j = begin; j < end; ++j) {
    ForGroups(x.count, DotsOf<T>{x, w.data + j * w.stride, {y.data + j, y.stride}});
  }
}

void Gemv(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  w.visit([&](const auto weights) HWY_ATTR { MultiplyRows(x, weights, begin, end, y); });
}
void GemvTransposed(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  w.visit([&](const auto weights) HWY_ATTR { MultiplyColumns(x, weights, begin, end, y); });
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Gemv);
HWY_EXPORT(GemvTransposed);

void interleave_rows(const GemvInput& x, float* columns) {
  for (std::int64_t i = 0; i < x.n; ++i) {
    for (std::int64_t r = 0; r < x.count; ++r) {
      *columns++ = x.data[r * x.stride + i];
    }
  }
}

void gemv(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(Gemv)(x, w, begin, end, y);
}
void gemv_transposed(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(GemvTransposed)(x, w, begin, end, y);
}

}  // namespace headroom::kernels
#endif
