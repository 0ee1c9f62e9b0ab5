// bfloat16 numbers in vectors of float32: widened when they are read, rounded to the nearest when they are written.
// Included once for each instruction set.
#if defined(HEADROOM_KERNELS_BFLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_BFLOAT16_INL_H_
#undef HEADROOM_KERNELS_BFLOAT16_INL_H_
#else
#define HEADROOM_KERNELS_BFLOAT16_INL_H_
#endif

#include <c10/util/BFloat16.h>

#include "engine/kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

using Bits = hn::RebindToUnsigned<Tag>;
using HalfBits = hn::Rebind<std::uint16_t, Tag>;

HWY_INLINE const std::uint16_t* bits_of(const c10::BFloat16* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

// `count` numbers from `from`, 0 in the other lanes; all lanes when count is at least their number.
HWY_INLINE hn::Vec<HalfBits> load_half(const c10::BFloat16* from, std::int64_t count) {
  const HalfBits d;
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) {
    return hn::LoadU(d, bits_of(from));
  }
  const auto some = static_cast<std::size_t>(count < 0 ? 0 : count);
#if HWY_TARGET <= HWY_AVX3  // before it, masks for 16 bits touch what lies beyond
  return hn::MaskedLoad(hn::FirstN(d, some), d, bits_of(from));
#else
  std::uint16_t whole[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(whole, from, some * sizeof(std::uint16_t));
  return hn::LoadU(d, whole);
#endif
}

// As load_part() of float32.
HWY_INLINE Vector load_part(const c10::BFloat16* from, std::int64_t count) {
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), load_half(from, count))));
}

// The nearest bfloat16, of two the even one, in the lower half of each lane; a NaN stays one.
HWY_INLINE hn::Vec<Bits> nearest(const Vector v) {
  const Bits d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
  const auto nan = hn::RebindMask(d, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Set(d, 0x7fc0), rounded);
}

// As store_part() of float32, rounded to the nearest.
HWY_INLINE void store_part(const Vector v, std::int64_t count, c10::BFloat16* to) {
  const HalfBits d;
  const auto half = hn::DemoteTo(d, hn::BitCast(hn::RebindToSigned<Tag>(), nearest(v)));
  auto* at = reinterpret_cast<std::uint16_t*>(to);
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::StoreU(half, d, at);
    return;
  }
  const auto some = static_cast<std::size_t>(count < 0 ? 0 : count);
#if HWY_TARGET <= HWY_AVX3
  hn::BlendedStore(half, hn::FirstN(d, some), d, at);
#else
  std::uint16_t whole[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(half, d, whole);
  std::memcpy(at, whole, some * sizeof(std::uint16_t));
#endif
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
