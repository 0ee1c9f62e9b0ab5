// bfloat16 numbers, and the order in which products read them.
//
// Instructions that multiply bfloat16 take two numbers of a sum at a time, so that a product's right operand [k, n]
// lies in pairs of rows: [K / 2, n, 2] with K = sum_length(k), zero beyond row k. Its left operand lies by rows of K
// numbers.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "transpose.h"

namespace headroom::kernels {

using c10::BFloat16;

constexpr std::int64_t even(std::int64_t k) {
  return (k + 1) / 2 * 2;
}

// Whether the CPU multiplies bfloat16 faster than float32: with AMX or AVX-512 BF16 instructions. HEADROOM_BFLOAT16
// decides instead where it is "float" (no), "pairs" (yes) or "tiles" (yes, with operands as for AMX).
bool multiplies_bfloat16();

// How many numbers operands have for a sum of k: an even number, and with AMX, if they are more than 32, a multiple of
// 32. oneDNN's micro-kernels for AMX take a sum in steps of the largest even number that divides it, 32 at most: 103
// steps for a sum of 412, 13 for 416.
std::int64_t sum_length(std::int64_t k);

// How many of m rows of a product to take first: with AMX whole tiles of 16 rows, and the rest, if any, by itself.
// oneDNN's micro-kernels for AMX give long sums' rows to tiles of the largest height that divides their number, 16 at
// most: 103 rows to 103 tiles of one row.
std::int64_t rows_at_once(std::int64_t m);

// A row times a number, rounded; null: zeros.
struct HalfRow {
  const BFloat16* data;
  float factor = 1.0F;
};
// to[2 j] = first[j], to[2 j + 1] = second[j] for j < n.
void pair_two_rows(const HalfRow& first, const HalfRow& second, std::int64_t n, BFloat16* to);

// Rows [k, n], those of float32 rounded, to pairs of rows to.stride pairs apart.
void pair_rows(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, Strided<BFloat16> to);
void pair_rows(Strided<const float> from, std::int64_t k, std::int64_t n, Strided<BFloat16> to);

// The same from the transposed matrix [n, k], to pairs of rows next to each other.
void pair_columns(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to);

// `from` [rows, k], k and its stride even and its first number at a multiple of 4 bytes, as columns of pairs:
// to [k / 2, columns, 2], zero in columns beyond `rows`.
void place_pairs(Strided<const BFloat16> from, std::int64_t rows, std::int64_t k, BFloat16* to, std::int64_t columns);
// Whether rows of k numbers may be given to it as they lie, filled up to sum_length(k) already.
bool lies_in_pairs(Strided<const BFloat16> from, std::int64_t k);

void round_numbers(const float* from, std::int64_t n, BFloat16* to);
void widen_numbers(const BFloat16* from, std::int64_t n, float* to);

// Rows [m, k], those of float32 rounded, to [m, sum_length(k)].
void fill_up_rows(Strided<const float> from, std::int64_t m, std::int64_t k, BFloat16* to);
void fill_up_rows(Strided<const BFloat16> from, std::int64_t m, std::int64_t k, BFloat16* to);

// Pairs of rows [K / 2, n, 2] to [n, K], K = sum_length(k): rows of a left operand.
void turn_pairs(const BFloat16* pairs, std::int64_t k, std::int64_t n, BFloat16* to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), 0 beyond; to [columns, sum_length(rows)]. `work`: room
// for as many numbers.
void transpose(Strided<const BFloat16> from, std::int64_t rows, std::int64_t columns, BFloat16* to, BFloat16* work);

}  // namespace headroom::kernels
