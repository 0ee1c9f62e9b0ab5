// SIMD vectors of float32: partial loads and stores that touch no memory beyond `count` elements, and conversion from
// and to bfloat16. Included once per instruction set.
#if defined(HEADROOM_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_VECTORS_INL_H_
#undef HEADROOM_KERNELS_VECTORS_INL_H_
#else
#define HEADROOM_KERNELS_VECTORS_INL_H_
#endif

#include <c10/util/BFloat16.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// Loads min(count, Lanes) elements, zeros in the other lanes.
HWY_INLINE Vector load_part(const float* from, std::int64_t count) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count >= lanes) {
    return hn::LoadU(d, from);
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float whole[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(whole, from, static_cast<std::size_t>(count < 0 ? 0 : count) * sizeof(float));
  return hn::Load(d, whole);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count < 0 ? 0 : count)), d, from);
#endif
}

HWY_INLINE void store_part(const Vector v, std::int64_t count, float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count >= lanes) {
    hn::StoreU(v, d, to);
    return;
  }
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float whole[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, whole);
  std::memcpy(to, whole, static_cast<std::size_t>(count < 0 ? 0 : count) * sizeof(float));
#else
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count < 0 ? 0 : count)), d, to);
#endif
}

// Access to a vector in for_lanes(): all lanes, or the first few at the end of a row.
struct WholeVector {
  HWY_INLINE Vector load(const float* from) const { return hn::LoadU(Tag(), from); }
  HWY_INLINE void store(const Vector v, float* to) const { hn::StoreU(v, Tag(), to); }
  HWY_INLINE Vector or_else(const Vector v, const Vector /*beyond*/) const { return v; }
};
struct FirstLanes {
  std::int64_t count;
  HWY_INLINE Vector load(const float* from) const { return load_part(from, count); }
  HWY_INLINE void store(const Vector v, float* to) const { store_part(v, count, to); }
  HWY_INLINE Vector or_else(const Vector v, const Vector beyond) const {
    return hn::IfThenElse(hn::FirstN(Tag(), static_cast<std::size_t>(count)), v, beyond);
  }
};

// Calls body(WholeVector or FirstLanes, i) for each vector of elements [begin, end).
template <class Body>
HWY_INLINE void for_lanes(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(WholeVector(), i);
  }
  if (i < end) {
    body(FirstLanes{end - i}, i);
  }
}

using Bits = hn::RebindToUnsigned<Tag>;
using Bf16Bits = hn::Rebind<std::uint16_t, Tag>;

HWY_INLINE const std::uint16_t* bits_of(const c10::BFloat16* p) {
  return reinterpret_cast<const std::uint16_t*>(p);
}

// Loads min(count, Lanes) bfloat16 elements, zeros in the other lanes.
HWY_INLINE hn::Vec<Bf16Bits> load_bf16(const c10::BFloat16* from, std::int64_t count) {
  const Bf16Bits d;
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) {
    return hn::LoadU(d, bits_of(from));
  }
  const auto some = static_cast<std::size_t>(count < 0 ? 0 : count);
#if HWY_TARGET <= HWY_AVX3  // older targets' 16-bit masked loads touch memory beyond the mask
  return hn::MaskedLoad(hn::FirstN(d, some), d, bits_of(from));
#else
  std::uint16_t whole[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(whole, from, some * sizeof(std::uint16_t));
  return hn::LoadU(d, whole);
#endif
}

HWY_INLINE Vector load_part(const c10::BFloat16* from, std::int64_t count) {
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), load_bf16(from, count))));
}

// Rounds to the nearest bfloat16, ties to even, in the lower half of each lane; NaN stays NaN.
HWY_INLINE hn::Vec<Bits> nearest(const Vector v) {
  const Bits d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
  const auto nan = hn::RebindMask(d, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Set(d, 0x7fc0), rounded);
}

HWY_INLINE void store_part(const Vector v, std::int64_t count, c10::BFloat16* to) {
  const Bf16Bits d;
  const auto bf16 = hn::DemoteTo(d, hn::BitCast(hn::RebindToSigned<Tag>(), nearest(v)));
  auto* at = reinterpret_cast<std::uint16_t*>(to);
  if (count >= static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::StoreU(bf16, d, at);
    return;
  }
  const auto some = static_cast<std::size_t>(count < 0 ? 0 : count);
#if HWY_TARGET <= HWY_AVX3
  hn::BlendedStore(bf16, hn::FirstN(d, some), d, at);
#else
  std::uint16_t whole[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(bf16, d, whole);
  std::memcpy(at, whole, some * sizeof(std::uint16_t));
#endif
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
