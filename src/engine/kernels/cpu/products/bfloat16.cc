#include "bfloat16.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "foundation/core/machine/system.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/products/bfloat16.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// Numbers j of two rows next to each other: 32 bits, the first row's, low(j, how many are left), in the lower half.
template <class Low, class High>
HWY_INLINE void PairUp(const Low& low, const High& high, std::int64_t n, c10::BFloat16* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t j = 0; j < n; j += lanes) {
    const auto pairs = hn::Or(low(j, n - j), hn::ShiftLeft<16>(high(j, n - j)));
    store_part(hn::BitCast(Tag(), pairs), n - j, reinterpret_cast<float*>(to) + j);
  }
}

void PairTwoRows(const HalfRow& first, const HalfRow& second, std::int64_t n, c10::BFloat16* to) {
  const auto bits = [](const HalfRow& row) {
    return [&row](std::int64_t j, std::int64_t left) HWY_ATTR {
      return row.data == nullptr ? hn::Zero(Bits()) : hn::PromoteTo(Bits(), load_half(row.data + j, left));
    };
  };
  const auto scaled = [](const HalfRow& row) {
    return [&row](std::int64_t j, std::int64_t left) HWY_ATTR {
      return row.data == nullptr ? hn::Zero(Bits())
                                 : nearest(hn::Mul(load_part(row.data + j, left), hn::Set(Tag(), row.factor)));
    };
  };
  if (first.factor == 1.0F && second.factor == 1.0F) {
    PairUp(bits(first), bits(second), n, to);
  } else {
    PairUp(scaled(first), scaled(second), n, to);
  }
}

HWY_INLINE hn::Vec<Bits> rounded_bits(const float* from, std::int64_t count) {
  return nearest(load_part(from, count));
}

// Of two rows of float32, rounded; `second` null: zeros.
void PairTwoRoundedRows(const float* first, const float* second, std::int64_t n, c10::BFloat16* to) {
  const auto low = [=](std::int64_t j, std::int64_t left) HWY_ATTR { return rounded_bits(first + j, left); };
  const auto high = [=](std::int64_t j, std::int64_t left)
                        HWY_ATTR { return second == nullptr ? hn::Zero(Bits()) : rounded_bits(second + j, left); };
  PairUp(low, high, n, to);
}

void Round(const float* from, std::int64_t n, c10::BFloat16* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t c = 0; c < n; c += lanes) {
    store_part(load_part(from + c, n - c), n - c, to + c);
  }
}

void Widen(const c10::BFloat16* from, std::int64_t n, float* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t c = 0; c < n; c += lanes) {
    store_part(load_part(from + c, n - c), n - c, to + c);
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(PairTwoRows);
HWY_EXPORT(PairTwoRoundedRows);
HWY_EXPORT(Round);
HWY_EXPORT(Widen);

namespace {

// Pairs are moved about as what they are in memory: 32 bits each.
const float* words(const BFloat16* pairs) {
  return reinterpret_cast<const float*>(pairs);
}
float* words(BFloat16* pairs) {
  return reinterpret_cast<float*>(pairs);
}

std::string_view wished_for() {
  const char* wish = std::getenv("HEADROOM_BFLOAT16");
  return wish == nullptr ? "" : wish;
}

bool multiplies_tiles() {
  static const bool kDoes = wished_for().empty() ? cpu_has("amx_bf16") : wished_for() == "tiles";
  return kDoes;
}

}  // namespace

bool multiplies_bfloat16() {
  static const bool kDoes =
      multiplies_tiles() || (wished_for().empty() ? cpu_has("avx512_bf16") : wished_for() == "pairs");
  return kDoes;
}

std::int64_t sum_length(std::int64_t k) {
  constexpr std::int64_t kTile = 32;
  return k > kTile && multiplies_tiles() ? (k + kTile - 1) / kTile * kTile : even(k);
}

std::int64_t rows_at_once(std::int64_t m) {
  constexpr std::int64_t kTile = 16;
  return m > kTile && multiplies_tiles() ? m / kTile * kTile : m;
}

namespace {

// Pairs of rows from the k-th on.
void clear_pairs(std::int64_t k, std::int64_t n, Strided<BFloat16> to) {
  for (std::int64_t i = even(k); i < sum_length(k); i += 2) {
    std::fill_n(to.data + i * to.stride, 2 * n, BFloat16(0.0F));
  }
}

}  // namespace

void pair_two_rows(const HalfRow& first, const HalfRow& second, std::int64_t n, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(PairTwoRows)(first, second, n, to);
}

void pair_rows(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, Strided<BFloat16> to) {
  for (std::int64_t i = 0; i < k; i += 2) {
    const BFloat16* row = from.data + i * from.stride;
    pair_two_rows({row}, {i + 1 < k ? row + from.stride : nullptr}, n, to.data + i * to.stride);
  }
  clear_pairs(k, n, to);
}

void pair_rows(Strided<const float> from, std::int64_t k, std::int64_t n, Strided<BFloat16> to) {
  for (std::int64_t i = 0; i < k; i += 2) {
    const float* row = from.data + i * from.stride;
    HWY_DYNAMIC_DISPATCH(PairTwoRoundedRows)
    (row, i + 1 < k ? row + from.stride : nullptr, n, to.data + i * to.stride);
  }
  clear_pairs(k, n, to);
}

void place_pairs(Strided<const BFloat16> from, std::int64_t rows, std::int64_t k, BFloat16* to, std::int64_t columns) {
  transpose(Strided<const float>{words(from.data), from.stride / 2}, rows, k / 2, {words(to), columns});
  for (std::int64_t c = 0; columns > rows && c < k / 2; ++c) {
    std::fill(to + 2 * (c * columns + rows), to + 2 * (c + 1) * columns, BFloat16(0.0F));
  }
}

void round_numbers(const float* from, std::int64_t n, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(Round)(from, n, to);
}

void widen_numbers(const BFloat16* from, std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, n, to);
}

namespace {

// Rows of k numbers each, which write(i, row) puts there, and zeros up to sum_length(k).
template <class Write>
void fill_up_each(std::int64_t m, std::int64_t k, BFloat16* to, const Write& write) {
  const std::int64_t width = sum_length(k);
  for (std::int64_t i = 0; i < m; ++i) {
    write(i, to + i * width);
    std::fill(to + i * width + k, to + (i + 1) * width, BFloat16(0.0F));
  }
}

}  // namespace

void fill_up_rows(Strided<const float> from, std::int64_t m, std::int64_t k, BFloat16* to) {
  fill_up_each(m, k, to, [&](std::int64_t i, BFloat16* row) { round_numbers(from.data + i * from.stride, k, row); });
}

void fill_up_rows(Strided<const BFloat16> from, std::int64_t m, std::int64_t k, BFloat16* to) {
  fill_up_each(m, k, to, [&](std::int64_t i, BFloat16* row) { std::copy_n(from.data + i * from.stride, k, row); });
}

bool lies_in_pairs(Strided<const BFloat16> from, std::int64_t k) {
  return k == sum_length(k) && from.stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(from.data) % 4 == 0;
}

void pair_columns(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to) {
  const std::int64_t width = sum_length(k);
  std::vector<BFloat16> filled;
  if (!lies_in_pairs(from, k)) {
    filled.resize(static_cast<std::size_t>(n * width));
    fill_up_rows(from, n, k, filled.data());
    from = {filled.data(), width};
  }
  place_pairs(from, n, width, to, n);
}

void turn_pairs(const BFloat16* pairs, std::int64_t k, std::int64_t n, BFloat16* to) {
  const std::int64_t count = sum_length(k) / 2;
  transpose(Strided<const float>{words(pairs), n}, count, n, {words(to), count});
}

void transpose(Strided<const BFloat16> from, std::int64_t rows, std::int64_t columns, BFloat16* to, BFloat16* work) {
  pair_rows(from, rows, columns, Strided<BFloat16>{work, columns});
  turn_pairs(work, rows, columns, to);
}

}  // namespace headroom::kernels
#endif
