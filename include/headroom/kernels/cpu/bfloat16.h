// bfloat16 numbers, and the order in which products read them.
//
// Instructions that multiply bfloat16 take two numbers of a sum at a time, so that a product's right operand [k, n]
// lies in pairs of rows: [ceil(k / 2), n, 2], the last pair filled up with zeros. Its left operand lies by rows, each
// of even(k) numbers.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "headroom/kernels/cpu/transpose.h"

namespace headroom::kernels {

using c10::BFloat16;

constexpr std::int64_t even(std::int64_t k) {
  return (k + 1) / 2 * 2;
}

// Rows [k, n] to pairs of rows.
void pair_rows(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to);

// The same from the transposed matrix [n, k]. `work`: room for n * even(k) numbers.
void pair_columns(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to, BFloat16* work);

// Rows [k, n] of float32, rounded, to pairs of rows to.stride pairs apart.
void pair_rounded_rows(Strided<const float> from, std::int64_t k, std::int64_t n, Strided<BFloat16> to);

// `from` [rows, k], k and its stride even, as columns of pairs: to [k / 2, columns, 2], zero in columns beyond `rows`.
void place_pairs(Strided<const BFloat16> from, std::int64_t rows, std::int64_t k, BFloat16* to, std::int64_t columns);

void round_numbers(const float* from, std::int64_t n, BFloat16* to);

// Rows [m, k] of float32, rounded, to [m, even(k)].
void round_rows(Strided<const float> from, std::int64_t m, std::int64_t k, BFloat16* to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), 0 for the one that makes rows even; to [columns,
// even(rows)]. `work`: room for even(rows) * columns numbers.
void transpose(Strided<const BFloat16> from, std::int64_t rows, std::int64_t columns, BFloat16* to, BFloat16* work);

}  // namespace headroom::kernels
