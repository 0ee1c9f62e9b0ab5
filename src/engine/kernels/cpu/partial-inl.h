// The first lanes of a vector: loads and stores that touch nothing beyond. Included once for each instruction set.
#if defined(HEADROOM_KERNELS_PARTIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_PARTIAL_INL_H_
#undef HEADROOM_KERNELS_PARTIAL_INL_H_
#else
#define HEADROOM_KERNELS_PARTIAL_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// `count` lanes from `from`, 0 in the others; all lanes when count is at least their number.
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

// What a loop over float32 rows does with a vector: all lanes of it, or, at the end of a row, the first few.
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

// Calls body(lanes, i) for each vector of entries [begin, end).
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

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
