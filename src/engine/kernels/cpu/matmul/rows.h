// Views of tensors of heads in float32 or bfloat16, and conversions of rows. Kernels read and write the tensors in
// place and compute in float32.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace headroom::kernels {

// A tensor [B, heads, rows, e] with a contiguous last axis.
template <class R>
struct HeadsOf {
  R first;                           // of the first sequence and head
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
  return (e + kLine - 1) / kLine * kLine;
}

// Where to compute float32 rows [m, n] destined for `to`: `to` itself, or `staging` if `to` is bfloat16, from where
// store_rows() rounds or copies them.
Strided<float> staged_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging);
// The same for rows of which row_width(n) columns are computed, because products of whole vectors are faster.
Strided<float> staged_wide_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging);
void store_rows(Strided<float> rows, std::int64_t m, std::int64_t n, const RowsOut& to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), rounded if `to` is bfloat16.
void store_transposed(Strided<const float> from, std::int64_t rows, std::int64_t columns, const RowsOut& to,
                      Buffer& staging);

}  // namespace headroom::kernels
