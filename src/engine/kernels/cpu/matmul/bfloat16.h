// Conversion between float32 and bfloat16, and the packed layout of bfloat16 matmul operands.
//
// bfloat16 instructions (AVX-512 BF16, AMX) multiply pairs of adjacent elements along the summed dimension k. The right
// operand [k, n] is therefore packed in pairs of rows (oneDNN's VNNI layout), [K / 2, n, 2] with K = padded_depth(k)
// and zeros beyond row k. The left operand is row-major with rows of K elements.
#pragma once

#include <cstdint>

#include "matrix.h"

namespace headroom::kernels {

// k rounded up to an even number.
constexpr std::int64_t even(std::int64_t k) {
  return (k + 1) / 2 * 2;
}

// Whether the CPU multiplies bfloat16 faster than float32, with AMX or AVX-512 BF16. The environment variable
// HEADROOM_BFLOAT16 overrides the detection: "float" (no), "pairs" (yes) or "tiles" (yes, with operands as for AMX).
bool has_fast_bfloat16();

// The summed dimension k with padding: an even number; with AMX and more than 32 elements, a multiple of 32. oneDNN's
// AMX micro-kernels sum in steps of the largest even divisor, at most 32: k = 412 takes 103 steps, k = 416 takes 13.
std::int64_t padded_depth(std::int64_t k);

// How many of m left-operand rows to multiply in one call: with AMX a multiple of 16, and the remainder in a second
// call. oneDNN's AMX micro-kernels use tiles of the largest height that divides the number of rows, at most 16: 103
// rows would take 103 tiles of one row.
std::int64_t rows_per_call(std::int64_t m);

// A row that is multiplied by `factor` and rounded. Null: zeros.
struct ScaledRow {
  const BFloat16* data;
  float factor = 1.0F;
};
// to[2 j] = first[j], to[2 j + 1] = second[j] for j < n.
void pack_row_pair(const ScaledRow& first, const ScaledRow& second, std::int64_t n, BFloat16* to);

// Packs rows [k, n] as a right operand; float32 is rounded. to.stride counts pairs.
void pack_pairs(const Rows& from, std::int64_t k, std::int64_t n, Strided<BFloat16> to);

// Packs the transpose of `from` [n, k] as a right operand without gaps.
void pack_pairs_transposed(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to);

// Writes the rows of `from` [rows, k] as columns of pairs, [k / 2, columns, 2], with zeros in columns beyond `rows`. k
// and the stride must be even and `from` aligned to 4 bytes: is_packed_depth() checks this for k = padded_depth(k).
void transpose_pairs(Strided<const BFloat16> from, std::int64_t rows, std::int64_t k, BFloat16* to,
                     std::int64_t columns);
bool is_packed_depth(Strided<const BFloat16> from, std::int64_t k);

void round_to_bfloat16(const float* from, std::int64_t n, BFloat16* to);
void widen_to_float32(const BFloat16* from, std::int64_t n, float* to);

// Copies rows [m, k], rounding float32, to a left operand [m, padded_depth(k)].
void pad_rows(const Rows& from, std::int64_t m, std::int64_t k, BFloat16* to);

// Turns pairs of rows [K / 2, n, 2] into a left operand [n, K], K = padded_depth(k).
void unpack_pairs_transposed(const BFloat16* pairs, std::int64_t k, std::int64_t n, BFloat16* to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), with zeros up to padded_depth(rows). `work` has the size
// of `to`, [columns, padded_depth(rows)].
void transpose(Strided<const BFloat16> from, std::int64_t rows, std::int64_t columns, BFloat16* to, BFloat16* work);

}  // namespace headroom::kernels
