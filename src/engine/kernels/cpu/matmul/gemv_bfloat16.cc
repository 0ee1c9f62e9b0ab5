#include "gemv.h"

#include <algorithm>

#include <hwy/base.h>

#include "bfloat16.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HEADROOM_HAS_BFLOAT16_GEMV 1
#endif

namespace headroom::kernels {

void interleave_pairs(const Bfloat16GemvInput& x, std::uint32_t* pairs) {
  for (std::int64_t i = 0; i < x.n; i += 2) {
    for (std::int64_t r = 0; r < x.count; ++r) {
      const BFloat16* from = x.data + r * x.stride + i;
      *pairs++ = from[0].x | (i + 1 < x.n ? static_cast<std::uint32_t>(from[1].x) << 16U : 0U);
    }
  }
}

#if HEADROOM_HAS_BFLOAT16_GEMV

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")

namespace bfloat16_gemv {

constexpr std::int64_t kLanes = 32;  // bfloat16 elements of a vector
constexpr std::int64_t kDeep = 32;   // matrix rows that all vectors use before the next ones are read
constexpr std::int64_t kPairs = kDeep / 2;

HWY_INLINE __m512i load(const BFloat16* from, __mmask32 lanes) {
  return _mm512_maskz_loadu_epi16(lanes, from);
}

HWY_INLINE __mmask32 first_lanes(std::int64_t count) {
  return count >= kLanes ? ~__mmask32{0}
                         : (__mmask32{1} << static_cast<unsigned>(std::max<std::int64_t>(count, 0))) - 1;
}

HWY_INLINE __m512 add_dots(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Sums of 32 columns, in the order of unpacked pairs: columns 0-3, 8-11, ... and 4-7, 12-15, ...
struct Columns {
  __m512 low, high;
};

HWY_INLINE __m512i natural_order(int half) {
  const int at = 8 * half;  // element c of the result is column 16 half + c
  return _mm512_setr_epi32(at, at + 1, at + 2, at + 3, 16 + at, 17 + at, 18 + at, 19 + at, at + 4, at + 5, at + 6,
                           at + 7, 20 + at, 21 + at, 22 + at, 23 + at);
}

HWY_INLINE Columns load_columns(const float* y, __mmask32 lanes) {
  const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), y);
  const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16U), y + 16);
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  return {_mm512_permutex2var_ps(first, low, second),
          _mm512_permutex2var_ps(first, _mm512_add_epi32(low, _mm512_set1_epi32(4)), second)};
}

HWY_INLINE void store_columns(const Columns& sums, __mmask32 lanes, float* y) {
  _mm512_mask_storeu_ps(y, static_cast<__mmask16>(lanes),
                        _mm512_permutex2var_ps(sums.low, natural_order(0), sums.high));
  _mm512_mask_storeu_ps(y + 16, static_cast<__mmask16>(lanes >> 16U),
                        _mm512_permutex2var_ps(sums.low, natural_order(1), sums.high));
}

// Up to kDeep matrix rows.
struct MatrixRows {
  Strided<const BFloat16> w;
  std::int64_t n;
};

// For 32 columns of R vectors: y += the sum over the matrix rows. Row i of x holds pair i of every vector.
template <int R>
HWY_INLINE void add_columns(Strided<const std::uint32_t> x, const MatrixRows& rows, __mmask32 lanes, Strided<float> y) {
  Columns sums[R];
  for (int r = 0; r < R; ++r) {
    sums[r] = load_columns(y.data + r * y.stride, lanes);
  }
  for (std::int64_t i = 0; i < rows.n; i += 2) {
    const std::uint32_t* factors = x.data + i / 2 * x.stride;
    const BFloat16* row = rows.w.data + i * rows.w.stride;
    const __m512i first = load(row, lanes);
    const __m512i second = i + 1 < rows.n ? load(row + rows.w.stride, lanes) : _mm512_setzero_si512();
    _mm_prefetch(reinterpret_cast<const char*>(row + kDeep * rows.w.stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(row + (kDeep + 1) * rows.w.stride), _MM_HINT_T0);
    const __m512i low = _mm512_unpacklo_epi16(first, second), high = _mm512_unpackhi_epi16(first, second);
    for (int r = 0; r < R; ++r) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(factors[r]));
      sums[r].low = add_dots(sums[r].low, factor, low);
      sums[r].high = add_dots(sums[r].high, factor, high);
    }
  }
  for (int r = 0; r < R; ++r) {
    store_columns(sums[r], lanes, y.data + r * y.stride);
  }
}

// Adds a block of at most kDeep matrix rows to columns [begin, end) of R vectors.
template <int R>
HWY_INLINE void add_block(const Bfloat16GemvInput& x, const MatrixRows& rows, std::int64_t begin, std::int64_t end,
                          Strided<float> y) {
  std::uint32_t own[kPairs * R];
  Strided<const std::uint32_t> pairs{x.pairs, x.count};
  if (x.pairs == nullptr) {
    interleave_pairs({x.data, R, rows.n, x.stride}, own);
    pairs = {own, R};
  }
  for (std::int64_t j = begin; j < end; j += kLanes) {
    add_columns<R>(pairs, {{rows.w.data + j, rows.w.stride}, rows.n}, first_lanes(end - j), {y.data + j, y.stride});
  }
}

// GCC warns about the undefined operand of unmasked shuffles.
constexpr __mmask16 kAllLanes = 0xffff;

// Returns the sums of the lanes of 16 vectors, each added in the same order: lanes l and l + 8, then l and l + 4, ...
HWY_INLINE __m512 sums_of_lanes(const __m512 (&v)[16]) {
  __m512 half[8], quarter[4], eighth[2];
  for (int i = 0; i < 8; ++i) {  // 256-bit halves: [v_i, v_{i+8}]
    half[i] = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAllLanes, v[i], v[i + 8], 0x44),
                            _mm512_maskz_shuffle_f32x4(kAllLanes, v[i], v[i + 8], 0xee));
  }
  for (int i = 0; i < 4; ++i) {  // 128-bit blocks: [v_i, v_{i+4}, v_{i+8}, v_{i+12}]
    quarter[i] = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAllLanes, half[i], half[i + 4], 0x88),
                               _mm512_maskz_shuffle_f32x4(kAllLanes, half[i], half[i + 4], 0xdd));
    quarter[i] = _mm512_maskz_shuffle_f32x4(kAllLanes, quarter[i], quarter[i], 0xd8);
  }
  for (int i = 0; i < 2; ++i) {  // pairs of elements: [v_i, v_{i+2}] in each block
    eighth[i] = _mm512_add_ps(_mm512_maskz_shuffle_ps(kAllLanes, quarter[i], quarter[i + 2], 0x44),
                              _mm512_maskz_shuffle_ps(kAllLanes, quarter[i], quarter[i + 2], 0xee));
  }
  return _mm512_add_ps(_mm512_maskz_shuffle_ps(kAllLanes, eighth[0], eighth[1], 0x88),
                       _mm512_maskz_shuffle_ps(kAllLanes, eighth[0], eighth[1], 0xdd));
}

// Where sums_of_lanes() puts the sum of vector i: block i / 4, and within it elements 0, 2, 1, 3.
constexpr int place_of(int i) {
  constexpr int kPlace[4] = {0, 2, 1, 3};
  return 4 * (i / 4) + kPlace[i % 4];
}

// Computes output elements of R vectors and 16 / R rows of the transposed matrix.
template <int R>
HWY_INLINE void dots(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t columns, Strided<float> y) {
  constexpr int kColumns = 16 / R;
  constexpr std::int64_t kAhead = 8;  // matrix rows
  const BFloat16* row[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    row[c] = w.data + std::min<std::int64_t>(c, columns - 1) * w.stride;
  }
  __m512 sums[16];
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  const auto add = [&](std::int64_t i, __mmask32 lanes) {
    __m512i weights[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      weights[c] = load(row[c] + i, lanes);
      _mm_prefetch(reinterpret_cast<const char*>(row[c] + kAhead * w.stride + i), _MM_HINT_T0);
    }
    for (int r = 0; r < R; ++r) {
      const __m512i values = load(x.data + r * x.stride + i, lanes);
      for (int c = 0; c < kColumns; ++c) {
        sums[r * kColumns + c] = add_dots(sums[r * kColumns + c], values, weights[c]);
      }
    }
  };
  const std::int64_t whole = x.n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    add(i, ~__mmask32{0});
  }
  if (whole < x.n) {
    add(whole, first_lanes(x.n - whole));
  }
  alignas(64) float all[16];
  _mm512_store_ps(all, sums_of_lanes(sums));
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kColumns && c < columns; ++c) {
      y.data[r * y.stride + c] = all[place_of(r * kColumns + c)];
    }
  }
}

template <int R>
HWY_INLINE void dots_of(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                        Strided<float> y) {
  for (std::int64_t j = begin; j < end; j += 16 / R) {
    dots<R>(x, {w.data + j * w.stride, w.stride}, end - j, {y.data + j, y.stride});
  }
}

// Returns the vectors from `first` on; `count` remains the stride of the pairs.
HWY_INLINE Bfloat16GemvInput from(const Bfloat16GemvInput& x, std::int64_t first) {
  return {x.data + first * x.stride, x.count, x.n, x.stride, x.pairs == nullptr ? nullptr : x.pairs + first};
}

// Calls body.run<R>(first) for groups of R vectors.
template <class Body>
HWY_INLINE void for_groups(std::int64_t count, const Body& body) {
  std::int64_t r = 0;
  for (; r + 8 <= count; r += 8) {
    body.template run<8>(r);
  }
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

struct AddBlock {
  const Bfloat16GemvInput& x;
  const MatrixRows& rows;
  std::int64_t begin, end;
  Strided<float> y;
  template <int R>
  void run(std::int64_t r) const {
    add_block<R>(from(x, r), rows, begin, end, {y.data + r * y.stride, y.stride});
  }
};

struct DotsOf {
  const Bfloat16GemvInput& x;
  Strided<const BFloat16> w;
  std::int64_t begin, end;
  Strided<float> y;
  template <int R>
  void run(std::int64_t r) const {
    dots_of<R>(from(x, r), w, begin, end, {y.data + r * y.stride, y.stride});
  }
};

HWY_NOINLINE void multiply(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                           Strided<float> y) {
  for (std::int64_t r = 0; r < x.count; ++r) {
    std::fill(y.data + r * y.stride + begin, y.data + r * y.stride + end, 0.0F);
  }
  for (std::int64_t i = 0; i < x.n; i += kDeep) {
    const MatrixRows rows{{w.data + i * w.stride, w.stride}, std::min(kDeep, x.n - i)};
    for_groups(x.count, AddBlock{x.part(i, rows.n), rows, begin, end, y});
  }
}

HWY_NOINLINE void multiply_transposed(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin,
                                      std::int64_t end, Strided<float> y) {
  constexpr std::int64_t kNear = 32;  // matrix rows that stay in the caches for all groups of vectors
  for (std::int64_t j = begin; j < end; j += kNear) {
    for_groups(x.count, DotsOf{x, w, j, std::min(end, j + kNear), y});
  }
}

}  // namespace bfloat16_gemv

#pragma GCC pop_options

bool has_bfloat16_gemv() {
  static const bool kHas = cpu_has("avx512_bf16") && has_fast_bfloat16();
  return kHas;
}

void gemv_bfloat16(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                   Strided<float> y) {
  bfloat16_gemv::multiply(x, w, begin, end, y);
}

void gemv_bfloat16_transposed(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin,
                              std::int64_t end, Strided<float> y) {
  bfloat16_gemv::multiply_transposed(x, w, begin, end, y);
}

#else

bool has_bfloat16_gemv() {
  return false;
}

void gemv_bfloat16(const Bfloat16GemvInput&, Strided<const BFloat16>, std::int64_t, std::int64_t, Strided<float>) {
  fail("gemv_bfloat16: needs AVX-512 BF16");
}

void gemv_bfloat16_transposed(const Bfloat16GemvInput&, Strided<const BFloat16>, std::int64_t, std::int64_t,
                              Strided<float>) {
  fail("gemv_bfloat16: needs AVX-512 BF16");
}

#endif

}  // namespace headroom::kernels
