// bfloat16 numbers in vectors of float32: widened when they are read, rounded to the nearest when they are written.
// Included once for each instruction set.
#if defined(HEADROOM_KERNELS_BFLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_BFLOAT16_INL_H_
#undef HEADROOM_KERNELS_BFLOAT16_INL_H_
#else
#define HEADROOM_KERNELS_BFLOAT16_INL_H_
#endif

#include <c10/util/BFloat16.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

using Bits = hn::RebindToUnsigned<Tag>;
using HalfBits = hn::Rebind<std::uint16_t, Tag>;

HWY_INLINE const std::uint16_t* bits_of(const c10::BFloat16* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

HWY_INLINE Vector widened(const std::uint16_t* from) {
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), hn::LoadU(HalfBits(), from))));
}

// As load_part() of float32.
HWY_INLINE Vector load_part(const c10::BFloat16* from, std::int64_t count) {
  constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(float);
  if (count >= static_cast<std::int64_t>(hn::Lanes(Tag()))) {
    return widened(bits_of(from));
  }
  std::uint16_t whole[kMost] = {};
  std::memcpy(whole, from, static_cast<std::size_t>(count < 0 ? 0 : count) * sizeof(std::uint16_t));
  return widened(whole);
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
  const Bits d;
  const auto half = hn::DemoteTo(HalfBits(), hn::BitCast(hn::RebindToSigned<Tag>(), nearest(v)));
  auto* at = reinterpret_cast<std::uint16_t*>(to);
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::StoreU(half, HalfBits(), at);
    return;
  }
  std::uint16_t whole[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(half, HalfBits(), whole);
  std::memcpy(at, whole, static_cast<std::size_t>(count < 0 ? 0 : count) * sizeof(std::uint16_t));
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
