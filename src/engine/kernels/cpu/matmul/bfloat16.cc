#include "bfloat16.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "foundation/core/ceil_div.h"
#include "foundation/core/machine/system.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/matmul/bfloat16.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// Writes elements j of two rows as one 32-bit word, the first row's in the lower half. low and high take (j, elements
// left).
template <class Low, class High>
HWY_INLINE void InterleavePairs(const Low& low, const High& high, std::int64_t n, c10::BFloat16* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t j = 0; j < n; j += lanes) {
    const auto pairs = hn::Or(low(j, n - j), hn::ShiftLeft<16>(high(j, n - j)));
    store_part(hn::BitCast(Tag(), pairs), n - j, reinterpret_cast<float*>(to) + j);
  }
}

void PackPair(const ScaledRow& first, const ScaledRow& second, std::int64_t n, c10::BFloat16* to) {
  const auto bits = [](const ScaledRow& row) {
    return [&row](std::int64_t j, std::int64_t left) HWY_ATTR {
      return row.data == nullptr ? hn::Zero(Bits()) : hn::PromoteTo(Bits(), load_bf16(row.data + j, left));
    };
  };
  const auto scaled = [](const ScaledRow& row) {
    return [&row](std::int64_t j, std::int64_t left) HWY_ATTR {
      return row.data == nullptr ? hn::Zero(Bits())
                                 : nearest(hn::Mul(load_part(row.data + j, left), hn::Set(Tag(), row.factor)));
    };
  };
  if (first.factor == 1.0F && second.factor == 1.0F) {
    InterleavePairs(bits(first), bits(second), n, to);
  } else {
    InterleavePairs(scaled(first), scaled(second), n, to);
  }
}

HWY_INLINE hn::Vec<Bits> rounded_bits(const float* from, std::int64_t count) {
  return nearest(load_part(from, count));
}

// Packs two float32 rows, rounded; null `second`: zeros.
void RoundAndPackPair(const float* first, const float* second, std::int64_t n, c10::BFloat16* to) {
  const auto low = [=](std::int64_t j, std::int64_t left) HWY_ATTR { return rounded_bits(first + j, left); };
  const auto high = [=](std::int64_t j, std::int64_t left)
                        HWY_ATTR { return second == nullptr ? hn::Zero(Bits()) : rounded_bits(second + j, left); };
  InterleavePairs(low, high, n, to);
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

HWY_EXPORT(PackPair);
HWY_EXPORT(RoundAndPackPair);
HWY_EXPORT(Round);
HWY_EXPORT(Widen);

namespace {

// Views pairs of bfloat16 as 32-bit words.
const float* words(const BFloat16* pairs) {
  return reinterpret_cast<const float*>(pairs);
}
float* words(BFloat16* pairs) {
  return reinterpret_cast<float*>(pairs);
}

std::string_view requested() {
  const char* value = std::getenv("HEADROOM_BFLOAT16");
  return value == nullptr ? "" : value;
}

bool has_amx_bfloat16() {
  static const bool kHas = requested().empty() ? cpu_has("amx_bf16") : requested() == "tiles";
  return kHas;
}

}  // namespace

bool has_fast_bfloat16() {
  static const bool kHas =
      has_amx_bfloat16() || (requested().empty() ? cpu_has("avx512_bf16") : requested() == "pairs");
  return kHas;
}

std::int64_t padded_depth(std::int64_t k) {
  constexpr std::int64_t kTile = 32;
  return k > kTile && has_amx_bfloat16() ? round_up(k, kTile) : even(k);
}

std::int64_t rows_per_call(std::int64_t m) {
  constexpr std::int64_t kTile = 16;
  return m > kTile && has_amx_bfloat16() ? m / kTile * kTile : m;
}

void pack_row_pair(const ScaledRow& first, const ScaledRow& second, std::int64_t n, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(PackPair)(first, second, n, to);
}

void pack_pairs(const Rows& from, std::int64_t k, std::int64_t n, Strided<BFloat16> to) {
  for (std::int64_t i = 0; i < k; i += 2) {
    const Rows first = from.from(i), second = i + 1 < k ? from.from(i + 1) : Rows();
    BFloat16* pairs = to.data + i * to.stride;
    if (from.bf16 != nullptr) {
      pack_row_pair({first.bf16}, {second.bf16}, n, pairs);
    } else {
      HWY_DYNAMIC_DISPATCH(RoundAndPackPair)(first.f32, second.f32, n, pairs);
    }
  }
  for (std::int64_t i = even(k); i < padded_depth(k); i += 2) {
    std::fill_n(to.data + i * to.stride, 2 * n, BFloat16(0.0F));
  }
}

void transpose_pairs(Strided<const BFloat16> from, std::int64_t rows, std::int64_t k, BFloat16* to,
                     std::int64_t columns) {
  transpose(Strided<const float>{words(from.data), from.stride / 2}, rows, k / 2, {words(to), columns});
}

void round_to_bfloat16(const float* from, std::int64_t n, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(Round)(from, n, to);
}

void widen_to_float32(const BFloat16* from, std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, n, to);
}

void pad_rows(const Rows& from, std::int64_t m, std::int64_t k, BFloat16* to) {
  const std::int64_t width = padded_depth(k);
  for (std::int64_t i = 0; i < m; ++i) {
    const Rows row = from.from(i);
    BFloat16* padded = to + i * width;
    row.bf16 == nullptr ? round_to_bfloat16(row.f32, k, padded) : void(std::copy_n(row.bf16, k, padded));
    std::fill(padded + k, padded + width, BFloat16(0.0F));
  }
}

bool is_packed_depth(Strided<const BFloat16> from, std::int64_t k) {
  return k == padded_depth(k) && from.stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(from.data) % 4 == 0;
}

void pack_pairs_transposed(Strided<const BFloat16> from, std::int64_t k, std::int64_t n, BFloat16* to) {
  const std::int64_t width = padded_depth(k);
  std::vector<BFloat16> filled;
  if (!is_packed_depth(from, k)) {
    filled.resize(static_cast<std::size_t>(n * width));
    pad_rows(from, n, k, filled.data());
    from = {filled.data(), width};
  }
  transpose_pairs(from, n, width, to, n);
}

void unpack_pairs_transposed(const BFloat16* pairs, std::int64_t k, std::int64_t n, BFloat16* to) {
  const std::int64_t count = padded_depth(k) / 2;
  transpose(Strided<const float>{words(pairs), n}, count, n, {words(to), count});
}

void transpose(Strided<const BFloat16> from, std::int64_t rows, std::int64_t columns, BFloat16* to, BFloat16* work) {
  pack_pairs(from, rows, columns, {work, columns});
  unpack_pairs_transposed(work, rows, columns, to);
}

}  // namespace headroom::kernels
#endif
