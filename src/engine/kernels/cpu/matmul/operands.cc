#include "operands.h"

#include <algorithm>

#include "tile_product.h"

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

namespace {

BFloat16* bfloat16_in(Buffer& buffer, std::int64_t n) {
  buffer.reserve((n + 1) / 2);
  return reinterpret_cast<BFloat16*>(buffer.data());
}

void copy_as_float32(const Rows& from, std::int64_t n, float* to) {
  if (from.bf16 == nullptr) {
    std::copy_n(from.f32, n, to);
  } else {
    widen_to_float32(from.bf16, n, to);
  }
}

}  // namespace

void multiply(const TileSize& size, const Left& a, const Right& b, Strided<float> c, bool add) {
  const auto& [m, n, k] = size;
  if (a.bf16 == nullptr) {
    tile_product({m, n, k, a.stride, b.stride, c.stride, add}, a.f32, b.f32, c.data);
  } else {
    tile_product({m, n, padded_depth(k), a.stride, b.stride, c.stride, add}, a.bf16, b.bf16, c.data);
  }
}

PackedOperands::PackedOperands(bool bf16, std::int64_t matrices, std::int64_t k, std::int64_t n)
    : bf16_(bf16),
      k_(k),
      n_(n),
      size_((bf16 ? padded_depth(k) : k) * n),
      data_(bf16 ? matrices * size_ / 2 : matrices * size_) {
  data_.fill(0.0F);
}

void PackedOperands::set_pairs_of_columns(const Rows& from, std::int64_t rows, BFloat16* to) {
  const std::int64_t k = padded_depth(k_);
  Strided<const BFloat16> aligned{from.bf16, from.stride};
  if (from.bf16 == nullptr || !is_packed_depth(aligned, k_)) {
    BFloat16* filled = bfloat16_in(work_, rows * k);
    pad_rows(from, rows, k_, filled);
    aligned = {filled, k};
  }
  transpose_pairs(aligned, rows, k, to, n_);
}

void PackedOperands::set_columns(std::int64_t i, const Rows& from, std::int64_t rows) {
  if (bf16_) {
    set_pairs_of_columns(from, rows, pairs(i));
  } else {
    transpose(as_float32(from, rows, k_, work_), rows, k_, {data_.data() + i * size_, n_});
  }
}

void PackedOperands::set_rows(std::int64_t i, const Rows& from, std::int64_t rows, std::int64_t columns) {
  if (bf16_) {
    pack_pairs(from, rows, columns, {pairs(i), n_});
    return;
  }
  float* to = data_.data() + i * size_;
  for (std::int64_t j = 0; j < rows; ++j) {
    copy_as_float32(from.from(j), columns, to + j * n_);
  }
}

Right PackedOperands::operator[](std::int64_t i) const {
  return bf16_ ? Right{nullptr, reinterpret_cast<const BFloat16*>(data_.data()) + i * size_, n_}
               : Right{data_.data() + i * size_, nullptr, n_};
}

Left ScratchOperands::left(const Rows& rows, std::int64_t m, std::int64_t k) {
  if (!bf16_) {
    return as_float32(rows, m, k, left_);
  }
  BFloat16* to = bfloat16_in(left_, m * padded_depth(k));
  pad_rows(rows, m, k, to);
  return {to, padded_depth(k)};
}

Left ScratchOperands::left_columns(const Rows& from, std::int64_t k, std::int64_t m) {
  if (bf16_ && from.bf16 != nullptr) {
    const std::int64_t width = padded_depth(k);
    BFloat16* to = bfloat16_in(left_, m * width);
    transpose(Strided<const BFloat16>{from.bf16, from.stride}, k, m, to, bfloat16_in(transposed_, m * width));
    return {to, width};
  }
  const Strided<const float> rows = as_float32(from, k, m, left_);
  transposed_.reserve(k * m);
  transpose(rows, k, m, {transposed_.data(), k});
  return left({transposed_.data(), k}, m, k);
}

Right ScratchOperands::right(const Rows& rows, std::int64_t k, std::int64_t n) {
  if (!bf16_) {
    const Strided<const float> there = as_float32(rows, k, n, right_);
    return {there.data, nullptr, there.stride};
  }
  BFloat16* to = bfloat16_in(right_, padded_depth(k) * n);
  pack_pairs(rows, k, n, {to, n});
  return {nullptr, to, n};
}

}  // namespace headroom::kernels
