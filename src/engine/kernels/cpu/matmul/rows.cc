#include "rows.h"

#include <algorithm>

namespace headroom::kernels {

Strided<const float> as_float32(const Rows& from, std::int64_t m, std::int64_t n, Buffer& staging) {
  if (from.bf16 == nullptr) {
    return {from.f32, from.stride};
  }
  staging.reserve(m * n);
  for (std::int64_t i = 0; i < m; ++i) {
    widen_to_float32(from.bf16 + i * from.stride, n, staging.data() + i * n);
  }
  return {staging.data(), n};
}

Strided<float> staged_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging) {
  if (to.bf16 == nullptr) {
    return {to.f32, to.stride};
  }
  staging.reserve(m * n);
  return {staging.data(), n};
}

Strided<float> staged_wide_rows(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& staging) {
  const std::int64_t width = row_width(n);
  if (to.bf16 == nullptr && width == n) {
    return {to.f32, to.stride};
  }
  staging.reserve(m * width);
  return {staging.data(), width};
}

void store_rows(Strided<float> rows, std::int64_t m, std::int64_t n, const RowsOut& to) {
  for (std::int64_t i = 0; i < m && rows.data != to.f32; ++i) {
    const float* row = rows.data + i * rows.stride;
    if (to.bf16 == nullptr) {
      std::copy_n(row, n, to.f32 + i * to.stride);
    } else {
      round_to_bfloat16(row, n, to.bf16 + i * to.stride);
    }
  }
}

void store_transposed(Strided<const float> from, std::int64_t rows, std::int64_t columns, const RowsOut& to,
                      Buffer& staging) {
  constexpr std::int64_t kRowsAtOnce = 64;  // few enough to stay in the caches between transposing and rounding
  const std::int64_t most = to.bf16 == nullptr ? columns : kRowsAtOnce;
  for (std::int64_t c = 0; c < columns; c += most) {
    const std::int64_t n = std::min(most, columns - c);
    const Strided<float> place = staged_rows(to.from(c), n, rows, staging);
    transpose({from.data + c, from.stride}, rows, n, place);
    store_rows(place, n, rows, to.from(c));
  }
}

}  // namespace headroom::kernels
