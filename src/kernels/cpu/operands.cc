#include "operands.h"

#include <algorithm>

#include "headroom/kernels/cpu/tile_product.h"

namespace headroom::kernels::detail {
namespace {

BFloat16* halves_in(Buffer& buffer, std::int64_t n) {
  buffer.make_room((n + 1) / 2);
  return reinterpret_cast<BFloat16*>(buffer.data());
}

}  // namespace

void multiply(const TileSize& size, const Left& a, const Right& b, Strided<float> c, bool add) {
  const auto& [m, n, k] = size;
  if (a.half == nullptr) {
    tile_product({m, n, k, a.stride, b.stride, c.stride, add}, a.single, b.single, c.data);
  } else {
    tile_product({m, n, sum_length(k), a.stride, b.stride, c.stride, add}, a.half, b.half, c.data);
  }
}

KeptOperands::KeptOperands(bool half, std::int64_t matrices, std::int64_t k, std::int64_t n)
    : half_(half),
      k_(k),
      n_(n),
      room_((half ? sum_length(k) : k) * n),
      data_(half ? matrices * room_ / 2 : matrices * room_) {}

void KeptOperands::set_columns(std::int64_t i, Strided<const float> from, std::int64_t rows) {
  if (!half_) {
    float* to = data_.data() + i * room_;
    transpose(from, rows, k_, {to, n_});
    for (std::int64_t c = 0; n_ > rows && c < k_; ++c) {
      std::fill(to + c * n_ + rows, to + (c + 1) * n_, 0.0F);
    }
    return;
  }
  BFloat16* rounded = halves_in(rounded_, rows * sum_length(k_));
  round_rows(from, rows, k_, rounded);
  place_pairs({rounded, sum_length(k_)}, rows, sum_length(k_), halves(i), n_);
}

void KeptOperands::set_rows(std::int64_t i, Strided<const float> from, std::int64_t rows, std::int64_t columns) {
  if (half_) {
    pair_rounded_rows(from, rows, columns, {halves(i), n_});
    std::fill(halves(i) + sum_length(rows) * n_, halves(i) + room_, BFloat16(0.0F));
    return;
  }
  float* to = data_.data() + i * room_;
  for (std::int64_t j = 0; j < rows; ++j) {
    std::copy_n(from.data + j * from.stride, columns, to + j * n_);
  }
  std::fill(to + rows * n_, to + room_, 0.0F);
}

Right KeptOperands::operator[](std::int64_t i) const {
  return half_ ? Right{nullptr, reinterpret_cast<const BFloat16*>(data_.data()) + i * room_, n_}
               : Right{data_.data() + i * room_, nullptr, n_};
}

Left PassingOperands::left(Strided<const float> rows, std::int64_t m, std::int64_t k) {
  if (!half_) {
    return {rows.data, nullptr, rows.stride};
  }
  BFloat16* to = halves_in(left_, m * sum_length(k));
  round_rows(rows, m, k, to);
  return {nullptr, to, sum_length(k)};
}

Left PassingOperands::left_columns(Strided<const float> from, std::int64_t k, std::int64_t m) {
  turned_.make_room(k * m);
  transpose(from, k, m, {turned_.data(), k});
  return left({turned_.data(), k}, m, k);
}

Right PassingOperands::right(Strided<const float> rows, std::int64_t k, std::int64_t n) {
  if (!half_) {
    return {rows.data, nullptr, rows.stride};
  }
  BFloat16* to = halves_in(right_, sum_length(k) * n);
  pair_rounded_rows(rows, k, n, {to, n});
  return {nullptr, to, n};
}

}  // namespace headroom::kernels::detail
