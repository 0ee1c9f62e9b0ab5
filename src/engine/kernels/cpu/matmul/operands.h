// Packed operands of the matrix multiplications inside attention. Rows may be float32 or bfloat16. Operands are
// bfloat16 if the tensors are and the CPU multiplies bfloat16 faster (has_fast_bfloat16()): then tensor elements keep
// their values, and probabilities and score gradients are rounded once. Otherwise operands are float32. Accumulation is
// always in float32.
#pragma once

#include <cstdint>

#include "bfloat16.h"
#include "foundation/core/ceil_div.h"

namespace headroom::kernels {

// Views of per-head tensors in float32 or bfloat16, and conversions of rows. Kernels read and write the tensors in
// place and compute in float32.

// A tensor [B, heads, rows, e] with a contiguous last axis.
template <class R>
struct HeadsOf {
  R first;                           // row of the first sequence and head
  std::int64_t batch = 0, head = 0;  // strides in elements

  bool defined() const { return first.f32 != nullptr || first.bf16 != nullptr; }
  R rows(std::int64_t b, std::int64_t h, std::int64_t row = 0) const {
    return first.ahead(b * batch + h * head + row * first.stride);
  }
};
using Heads = HeadsOf<Rows>;
using HeadsOut = HeadsOf<RowsOut>;

// Rows [m, n] as float32: in place, or converted into `staging`.
Strided<const float> as_float32(const Rows& from, std::int64_t m, std::int64_t n, Buffer& staging);

// Stride of packed rows of e elements: a multiple of a cache line.
inline std::int64_t row_width(std::int64_t e) {
  constexpr std::int64_t kLine = 16;
  return round_up(e, kLine);
}

// Where to compute float32 rows [m, n] of the result `to`: in place, or in `staging` if `to` is bfloat16. store_rows()
// then copies or rounds them.
Strided<float> staged_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging);
// As above, but for row_width(n) columns, because multiplications of whole vectors are faster.
Strided<float> staged_wide_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging);
void store_rows(Strided<float> rows, std::int64_t m, std::int64_t n, const RowsOut& to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), rounded if `to` is bfloat16.
void store_transposed(Strided<const float> from, std::int64_t rows, std::int64_t columns, const RowsOut& to,
                      Buffer& staging);

// [m, k], row-major; bfloat16 rows are padded to padded_depth(k).
using Left = Rows;

// [k, n]: row-major in float32, pairs of rows in bfloat16.
struct Right {
  const float* f32 = nullptr;
  const BFloat16* bf16 = nullptr;
  std::int64_t stride = 0;

  // The submatrix from row i, which must be even, and column j on.
  Right from(std::int64_t i, std::int64_t j) const {
    return bf16 == nullptr ? Right{f32 + i * stride + j, nullptr, stride}
                           : Right{nullptr, bf16 + i * stride + 2 * j, stride};
  }
};

// C [m, n] = A [m, k] B [k, n], or += if `add`.
struct TileSize {
  std::int64_t m, n, k;
};
void multiply(const TileSize& size, const Left& a, const Right& b, Strided<float> c, bool add = false);

// Owns several right operands [k, n] of the same size, packed once and used by many multiplications. Elements that were
// not set are 0. Not thread-safe.
class PackedOperands {
 public:
  PackedOperands(bool bf16, std::int64_t matrices, std::int64_t k, std::int64_t n);

  // Copies the transpose of `from` [rows, k] to the first columns of matrix i.
  void set_columns(std::int64_t i, const Rows& from, std::int64_t rows);
  // Copies `from` [rows, columns] to the first rows of matrix i.
  void set_rows(std::int64_t i, const Rows& from, std::int64_t rows, std::int64_t columns);
  Right operator[](std::int64_t i) const;

 private:
  BFloat16* pairs(std::int64_t i) { return reinterpret_cast<BFloat16*>(data_.data()) + i * size_; }
  void set_pairs_of_columns(const Rows& from, std::int64_t rows, BFloat16* to);

  bool bf16_;
  std::int64_t k_, n_, size_;  // size_: elements of one packed matrix
  Buffer data_, work_;
};

// Temporary operands: a result is valid until the next call for the same side (left or right).
class ScratchOperands {
 public:
  explicit ScratchOperands(bool bf16) : bf16_(bf16) {}

  Left left(const Rows& rows, std::int64_t m, std::int64_t k);
  // The transpose of `from` [k, m].
  Left left_columns(const Rows& from, std::int64_t k, std::int64_t m);
  Right right(const Rows& rows, std::int64_t k, std::int64_t n);

 private:
  bool bf16_;
  Buffer left_, right_, transposed_;
};

}  // namespace headroom::kernels
