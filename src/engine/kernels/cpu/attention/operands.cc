#include "operands.h"

#include <algorithm>

#include "engine/kernels/cpu/products/tile_product.h"
#include "engine/kernels/cpu/rows.h"

namespace headroom::kernels::detail {
namespace {

BFloat16* halves_in(Buffer& buffer, std::int64_t n) {
  buffer.make_room((n + 1) / 2);
  return reinterpret_cast<BFloat16*>(buffer.data());
}

// n numbers of the first row.
void copy_numbers(const Rows& from, std::int64_t n, float* to) {
  if (from.half == nullptr) {
    std::copy_n(from.single, n, to);
  } else {
    widen_numbers(from.half, n, to);
  }
}

// Rows [m, k] to [m, sum_length(k)].
void fill_up(const Rows& from, std::int64_t m, std::int64_t k, BFloat16* to) {
  if (from.half == nullptr) {
    fill_up_rows(Strided<const float>{from.single, from.stride}, m, k, to);
  } else {
    fill_up_rows(Strided<const BFloat16>{from.half, from.stride}, m, k, to);
  }
}

// Rows [k, n] to pairs of rows.
void pair(const Rows& from, std::int64_t k, std::int64_t n, Strided<BFloat16> to) {
  if (from.half == nullptr) {
    pair_rows(Strided<const float>{from.single, from.stride}, k, n, to);
  } else {
    pair_rows(Strided<const BFloat16>{from.half, from.stride}, k, n, to);
  }
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

void KeptOperands::set_pairs_of_columns(std::int64_t i, const Rows& from, std::int64_t rows) {
  const std::int64_t k = sum_length(k_);
  Strided<const BFloat16> numbers{from.half, from.stride};
  if (from.half == nullptr || !lies_in_pairs(numbers, k_)) {
    BFloat16* filled = halves_in(work_, rows * k);
    fill_up(from, rows, k_, filled);
    numbers = {filled, k};
  }
  place_pairs(numbers, rows, k, halves(i), n_);
}

void KeptOperands::set_columns(std::int64_t i, const Rows& from, std::int64_t rows) {
  if (half_) {
    set_pairs_of_columns(i, from, rows);
    return;
  }
  float* to = data_.data() + i * room_;
  kernels::transpose(floats(from, rows, k_, work_), rows, k_, {to, n_});
  for (std::int64_t c = 0; n_ > rows && c < k_; ++c) {
    std::fill(to + c * n_ + rows, to + (c + 1) * n_, 0.0F);
  }
}

void KeptOperands::set_rows(std::int64_t i, const Rows& from, std::int64_t rows, std::int64_t columns) {
  if (half_) {
    pair(from, rows, columns, {halves(i), n_});
    std::fill(halves(i) + sum_length(rows) * n_, halves(i) + room_, BFloat16(0.0F));
    return;
  }
  float* to = data_.data() + i * room_;
  for (std::int64_t j = 0; j < rows; ++j) {
    copy_numbers(from.from(j), columns, to + j * n_);
  }
  std::fill(to + rows * n_, to + room_, 0.0F);
}

Right KeptOperands::operator[](std::int64_t i) const {
  return half_ ? Right{nullptr, reinterpret_cast<const BFloat16*>(data_.data()) + i * room_, n_}
               : Right{data_.data() + i * room_, nullptr, n_};
}

Left PassingOperands::left(const Rows& rows, std::int64_t m, std::int64_t k) {
  if (!half_) {
    const Strided<const float> there = floats(rows, m, k, left_);
    return {there.data, nullptr, there.stride};
  }
  BFloat16* to = halves_in(left_, m * sum_length(k));
  fill_up(rows, m, k, to);
  return {nullptr, to, sum_length(k)};
}

Left PassingOperands::left_columns(const Rows& from, std::int64_t k, std::int64_t m) {
  if (half_ && from.half != nullptr) {
    const std::int64_t width = sum_length(k);
    BFloat16* to = halves_in(left_, m * width);
    kernels::transpose(Strided<const BFloat16>{from.half, from.stride}, k, m, to, halves_in(turned_, m * width));
    return {nullptr, to, width};
  }
  const Strided<const float> rows = floats(from, k, m, left_);
  turned_.make_room(k * m);
  kernels::transpose(rows, k, m, {turned_.data(), k});
  return left({turned_.data(), nullptr, k}, m, k);
}

Right PassingOperands::right(const Rows& rows, std::int64_t k, std::int64_t n) {
  if (!half_) {
    const Strided<const float> there = floats(rows, k, n, right_);
    return {there.data, nullptr, there.stride};
  }
  BFloat16* to = halves_in(right_, sum_length(k) * n);
  pair(rows, k, n, {to, n});
  return {nullptr, to, n};
}

}  // namespace headroom::kernels::detail
