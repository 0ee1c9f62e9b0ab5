#include "tile_product.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/matmul/tile_product.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
constexpr std::int64_t kRows = 4, kVectors = 2;  // of C held in registers

// Computes up to kRows rows and kVectors vectors of columns of C; the last vector may be partial.
HWY_INLINE void Corner(const TileProduct& s, std::int64_t rows, std::int64_t columns, const float* a, const float* b,
                       float* c) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum[kRows][kVectors];
  const float* row[kRows];
  for (std::int64_t i = 0; i < kRows; ++i) {
    sum[i][0] = sum[i][1] = hn::Zero(d);
    row[i] = a + std::min(i, rows - 1) * s.lda;
  }
  for (std::int64_t k = 0; k < s.k; ++k) {
    const float* from = b + k * s.ldb;
    const Vector b0 = load_part(from, columns);
    const Vector b1 = columns > lanes ? load_part(from + lanes, columns - lanes) : hn::Zero(d);
    for (std::int64_t i = 0; i < kRows; ++i) {
      const Vector factor = hn::Set(d, row[i][k]);
      sum[i][0] = hn::MulAdd(factor, b0, sum[i][0]);
      sum[i][1] = hn::MulAdd(factor, b1, sum[i][1]);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t v = 0; v < kVectors && v * lanes < columns; ++v) {
      float* to = c + i * s.ldc + v * lanes;
      const std::int64_t left = columns - v * lanes;
      store_part(s.add ? hn::Add(sum[i][v], load_part(to, left)) : sum[i][v], left, to);
    }
  }
}

void Portable(const TileProduct& s, const float* a, const float* b, float* c) {
  const std::int64_t step = kVectors * static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t j = 0; j < s.n; j += step) {
    for (std::int64_t i = 0; i < s.m; i += kRows) {
      Corner(s, std::min(kRows, s.m - i), std::min(step, s.n - j), a + i * s.lda, b + j, c + i * s.ldc + j);
    }
  }
}

// Reads each pair of rows of B as 32-bit words of two bfloat16 elements.
void PortablePairs(const TileProduct& s, const c10::BFloat16* a, const c10::BFloat16* b, float* c) {
  const Tag d;
  const Bits bits;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < s.n; j += lanes) {
    const std::int64_t left = s.n - j;
    for (std::int64_t i = 0; i < s.m; ++i) {
      float* to = c + i * s.ldc + j;
      Vector sum = s.add ? load_part(to, left) : hn::Zero(d);
      for (std::int64_t k = 0; k < s.k; k += 2) {
        const auto* words = reinterpret_cast<const float*>(b + k * s.ldb) + j;
        const auto pair = hn::BitCast(bits, load_part(words, left));
        const Vector first = hn::BitCast(d, hn::ShiftLeft<16>(pair));
        const Vector second = hn::BitCast(d, hn::And(pair, hn::Set(bits, 0xffff0000U)));
        sum = hn::MulAdd(hn::Set(d, static_cast<float>(a[i * s.lda + k])), first, sum);
        sum = hn::MulAdd(hn::Set(d, static_cast<float>(a[i * s.lda + k + 1])), second, sum);
      }
      store_part(sum, left, to);
    }
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Portable);
HWY_EXPORT(PortablePairs);

namespace {

bool portable_requested() {
  const char* value = std::getenv("HEADROOM_TILE_PRODUCT");
  return value != nullptr && std::string_view(value) == "portable";
}

// Whether ATen has a micro-kernel for this type; brgemm throws if the CPU lacks the instructions.
template <class T>
bool has_micro_kernel() {
  constexpr bool kPairs = !std::is_same_v<T, float>;
  if (portable_requested()) {
    return false;
  }
  try {
    const T a[2] = {1.0F, 2.0F}, b[2] = {3.0F, 4.0F};
    float c = 0.0F;
    at::native::cpublas::brgemm(1, 1, 2, 2, 1, 1, false, a, b, &c, kPairs);
    at::native::cpublas::brgemm_release(kPairs);
    return c == 11.0F;
  } catch (const std::exception&) {
    return false;
  }
}

bool pairs_use_micro_kernels() {
  static const bool kUse = has_micro_kernel<BFloat16>();
  return kUse;
}

// Handles empty sizes, which the micro-kernels refuse: an empty sum is 0.
bool is_empty(const TileProduct& s, float* c) {
  for (std::int64_t i = 0; s.k == 0 && !s.add && i < s.m; ++i) {
    std::fill_n(c + i * s.ldc, s.n, 0.0F);
  }
  return s.m == 0 || s.n == 0 || s.k == 0;
}

}  // namespace

bool tile_product_uses_micro_kernels() {
  static const bool kUses = has_micro_kernel<float>();
  return kUses;
}

const char* tile_product_target() {
  return tile_product_uses_micro_kernels() ? "micro-kernels" : "vector loops";
}

void tile_product(const TileProduct& s, const float* a, const float* b, float* c) {
  if (is_empty(s, c)) {
    return;
  }
  if (tile_product_uses_micro_kernels()) {
    at::native::cpublas::brgemm(s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.add, a, b, c);
  } else {
    HWY_DYNAMIC_DISPATCH(Portable)(s, a, b, c);
  }
}

void tile_product(const TileProduct& s, const BFloat16* a, const BFloat16* b, float* c) {
  if (is_empty(s, c)) {
    return;
  }
  if (!pairs_use_micro_kernels()) {
    HWY_DYNAMIC_DISPATCH(PortablePairs)(s, a, b, c);
    return;
  }
  for (std::int64_t i = 0, rows = 0; i < s.m; i += rows) {
    rows = rows_per_call(s.m - i);
    at::native::cpublas::brgemm(rows, s.n, s.k, s.lda, s.ldb, s.ldc, s.add, a + i * s.lda, b, c + i * s.ldc, true);
  }
}

void tile_product_done() {
  if (tile_product_uses_micro_kernels()) {
    at::native::cpublas::brgemm_release(false);
  }
  if (pairs_use_micro_kernels()) {
    at::native::cpublas::brgemm_release(true);
  }
}

}  // namespace headroom::kernels
#endif
