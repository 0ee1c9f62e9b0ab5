#include "rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/rows.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

RowMaximum Maximum(const float* row, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // x * 0 is 0 for finite x only, and a sum with NaN stays NaN.
  Vector most = hn::Set(d, row[0]), zeros = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const Vector x = hn::LoadU(d, row + j);
    most = hn::Max(most, x);
    zeros = hn::MulAdd(x, hn::Zero(d), zeros);
  }
  float greatest = hn::GetLane(hn::MaxOfLanes(d, most)), zero = hn::GetLane(hn::SumOfLanes(d, zeros));
  for (; j < n; ++j) {
    greatest = std::max(greatest, row[j]);
    zero += row[j] * 0.0F;
  }
  if (zero != 0.0F) {
    return {.index = 0, .finite = false};
  }
  return {.index = std::find(row, row + n, greatest) - row, .finite = true};
}

using Words = hn::Vec<Bits>;

// A bijection of 32 bits whose every output bit depends on every input bit (Wellons' "lowbias32").
HWY_INLINE Words scramble(Words x) {
  const Bits d;
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  x = hn::Mul(x, hn::Set(d, 0x7FEB352DU));
  x = hn::Xor(x, hn::ShiftRight<15>(x));
  x = hn::Mul(x, hn::Set(d, 0x846CA68BU));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Lane i: rule.scale if element begin + i is kept, 0 if it is dropped.
HWY_INLINE Vector factors(const DropoutRule& rule, std::int64_t begin) {
  const Bits d;
  const auto at = static_cast<std::uint64_t>(begin);
  const std::uint64_t block = rule.seed + (at >> 32) * 0x9E3779B97F4A7C15ULL;
  // Iota from 0 plus a broadcast: GCC would build any other Iota in memory, lane by lane.
  const Words first = hn::Set(d, static_cast<std::uint32_t>(at) + static_cast<std::uint32_t>(block));
  Words x = scramble(hn::Add(hn::Iota(d, 0), first));
  x = scramble(hn::Xor(x, hn::Set(d, static_cast<std::uint32_t>(block >> 32))));
  const hn::RebindToSigned<Tag> ordered;  // 31 bits, because every target can compare signed integers
  const auto draw = hn::BitCast(ordered, hn::ShiftRight<1>(x));
  const auto stays = hn::RebindMask(Tag(), hn::Gt(draw, hn::Set(ordered, rule.threshold - 1)));
  return hn::IfThenElseZero(stays, hn::Set(Tag(), rule.scale));
}

// Starts vectors at multiples of their width, so that none crosses a multiple of 2^32 (factors() hashes the index's
// halves separately).
template <class Body>
HWY_INLINE void for_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t next = std::min(end, (i / lanes + 1) * lanes);
    body(i, next - i);
    i = next;
  }
}

template <class T>
HWY_INLINE void ForwardOf(const DropoutRule& rule, const T* x, std::int64_t begin, std::int64_t end, T* y) {
  for_vectors(begin, end, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
    Vector v = load_part(x + i, n);
    if (rule.relu) {
      v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(Tag())), v);
    }
    store_part(hn::Mul(v, factors(rule, i)), n, y + i);
  });
}

template <class T>
HWY_INLINE void BackwardOf(const DropoutRule& rule, const T* d_y, const T* y, std::int64_t begin, std::int64_t end,
                           T* d_x) {
  for_vectors(begin, end, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
    // With relu the forward result is 0 exactly where the gradient is.
    const Vector factor =
        rule.relu ? hn::IfThenElseZero(hn::Gt(load_part(y + i, n), hn::Zero(Tag())), hn::Set(Tag(), rule.scale))
                  : factors(rule, i);
    store_part(hn::Mul(load_part(d_y + i, n), factor), n, d_x + i);
  });
}

void Dropout(const DropoutRule& rule, const Rows& x, std::int64_t begin, std::int64_t end, const RowsOut& y) {
  x.bf16 == nullptr ? ForwardOf(rule, x.f32, begin, end, y.f32) : ForwardOf(rule, x.bf16, begin, end, y.bf16);
}
void DropoutBackward(const DropoutRule& rule, const Rows& d_y, const Rows& y, std::int64_t begin, std::int64_t end,
                     const RowsOut& d_x) {
  d_y.bf16 == nullptr ? BackwardOf(rule, d_y.f32, y.f32, begin, end, d_x.f32)
                      : BackwardOf(rule, d_y.bf16, y.bf16, begin, end, d_x.bf16);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Maximum);
HWY_EXPORT(Dropout);
HWY_EXPORT(DropoutBackward);

RowMaximum row_maximum(const float* row, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Maximum)(row, n);
}

void dropout(const DropoutRule& rule, const Rows& x, std::int64_t begin, std::int64_t end, const RowsOut& y) {
  HWY_DYNAMIC_DISPATCH(Dropout)(rule, x, begin, end, y);
}
void dropout_backward(const DropoutRule& rule, const Rows& d_y, const Rows& y, std::int64_t begin, std::int64_t end,
                      const RowsOut& d_x) {
  HWY_DYNAMIC_DISPATCH(DropoutBackward)(rule, d_y, y, begin, end, d_x);
}

}  // namespace headroom::kernels
#endif
