// gemv.h for bfloat16 vectors and matrices on CPUs with AVX-512 BF16, whose dot products of pairs take half as many
// instructions as widening to float32. Batch-invariant; the rounding differs from gemv()'s.
//
// Sums are float32. Pairs are added in ascending order of i, and one instruction adds both products of a pair.
#pragma once

#include <cstdint>

#include "matrix.h"

namespace headroom::kernels {

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
