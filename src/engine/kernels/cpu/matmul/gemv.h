// Matrix-vector multiplication (GEMV) of one vector or a few: bound by memory bandwidth, so each weight is read once.
// Batch-invariant: a vector's result has the same bits whatever the other vectors are.
#pragma once

#include <cstdint>

#include "matrix.h"

namespace headroom::kernels {

// `count` vectors of n elements, row r at data + r * stride. `columns` optionally holds the same vectors transposed,
// [n, count] without gaps (interleave_rows()): worth it for several calls with the same vectors.
struct GemvInput {
  const float* data;
  std::int64_t count, n, stride;
  const float* columns = nullptr;

  // Elements [first, first + size) of every vector.
  GemvInput part(std::int64_t first, std::int64_t size) const {
    return {data + first, count, size, stride, columns == nullptr ? nullptr : columns + first * count};
  }
};
void interleave_rows(const GemvInput& x, float* columns);

// y[r][j] = sum_i x[r][i] w[i][j] for j in [begin, end), accumulated in float32; w [n, ...] is row-major.
void gemv(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y);

// y[r][j] = sum_i x[r][i] w[j][i] for j in [begin, end): w [..., n] is the transposed matrix.
void gemv_transposed(const GemvInput& x, const Rows& w, std::int64_t begin, std::int64_t end, Strided<float> y);

// The same for one vector x [n] and columns [0, columns).
inline void gemv(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y) {
  gemv({x, 1, n, 0}, w, 0, columns, {y, 0});
}
inline void gemv_transposed(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y) {
  gemv_transposed({x, 1, n, 0}, w, 0, columns, {y, 0});
}

// gemv() for bfloat16 vectors and matrices on CPUs with AVX-512 BF16, whose dot products of pairs take half as many
// instructions as widening to float32. Batch-invariant; the rounding differs from gemv()'s.
//
// Sums are float32. Pairs are added in ascending order of i, and one instruction adds both products of a pair.

// Whether the functions below run on this CPU. HEADROOM_BFLOAT16=float and HEADROOM_SIMD disable them.
bool has_bfloat16_gemv();

// `count` vectors of n elements, row r at data + r * stride. `pairs` optionally holds the same vectors as pairs of
// elements, [even(n) / 2, count] without gaps (interleave_pairs()): worth it for several calls with the same vectors.
struct Bfloat16GemvInput {
  const BFloat16* data;
  std::int64_t count, n, stride;
  const std::uint32_t* pairs = nullptr;

  // Elements [first, first + size) of every vector; `first` must be even.
  Bfloat16GemvInput part(std::int64_t first, std::int64_t size) const {
    return {data + first, count, size, stride, pairs == nullptr ? nullptr : pairs + first / 2 * count};
  }
};
void interleave_pairs(const Bfloat16GemvInput& x, std::uint32_t* pairs);

// y[r][j] = sum_i x[r][i] w[i][j] for j in [begin, end); w [n, ...] is row-major.
void gemv_bfloat16(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin, std::int64_t end,
                   Strided<float> y);

// y[r][j] = sum_i x[r][i] w[j][i] for j in [begin, end): w [..., n] is the transposed matrix.
void gemv_bfloat16_transposed(const Bfloat16GemvInput& x, Strided<const BFloat16> w, std::int64_t begin,
                              std::int64_t end, Strided<float> y);

}  // namespace headroom::kernels
