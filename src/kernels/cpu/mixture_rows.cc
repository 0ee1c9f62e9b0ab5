#include "headroom/kernels/cpu/mixture_rows.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mixture_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
constexpr float kFloor = -87.0F;  // exp() below it is 0 in float

HWY_INLINE Vector exp_above_floor(const Vector x) {
  const Tag d;
  const Vector floor = hn::Set(d, kFloor);
  return hn::IfThenElseZero(hn::Ge(x, floor), hn::Exp(d, hn::Max(x, floor)));
}

// Calls body(index, lanes left, mask of those) for each vector of the visible entries.
template <class Body>
HWY_INLINE void over_visible(const ScoreRow& row, const Body& body) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = row.low; i < row.high; i += lanes) {
    const std::int64_t left = row.high - i;
    body(i, left, hn::FirstN(d, static_cast<std::size_t>(std::min(left, lanes))));
  }
}

HWY_INLINE void clear_outside(const ScoreRow& row, float* values) {
  std::fill(values, values + row.low, 0.0F);
  std::fill(values + row.high, values + row.n, 0.0F);
}

float Affine(const ScoreRow& row, const AffineRow& affine, const float* product, float* scores) {
  const Tag d;
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const Vector factor = hn::Set(d, affine.factor), constant = hn::Set(d, affine.query_term);
  Vector most = lowest;
  over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask) HWY_ATTR {
    Vector s =
        hn::MulAdd(factor, load_part(product + i, left), hn::Add(load_part(affine.key_term + i, left), constant));
    if (row.bias != nullptr) {
      s = hn::Add(s, load_part(row.bias + i, left));
    }
    most = hn::Max(most, hn::IfThenElse(mask, s, lowest));
    store_part(s, left, scores + i);
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

float MixtureExp(const ScoreRow& row, std::int64_t components, std::int64_t stride, float shift, float* scores) {
  const Tag d;
  const Vector offset = hn::Set(d, shift);
  Vector total = hn::Zero(d);
  over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask) HWY_ATTR {
    Vector w = hn::Zero(d);
    for (std::int64_t r = 0; r < components; ++r) {
      w = hn::Add(w, exp_above_floor(hn::Sub(load_part(scores + r * stride + i, left), offset)));
    }
    w = hn::IfThenElseZero(mask, w);
    total = hn::Add(total, w);
    store_part(w, left, scores + i);
  });
  clear_outside(row, scores);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

void MixtureBackward(const ScoreRow& row, const MixtureBackwardRow& back, float* scores, float* p) {
  const Tag d;
  const Vector offset = hn::Set(d, back.log_sum), mean = hn::Set(d, back.mean);
  // One component after the other: the row stays in the first-level cache.
  for (std::int64_t r = 0; r < back.components; ++r) {
    const Vector factor = hn::Set(d, back.factor[r]);
    float* own = scores + r * back.stride;
    Vector total = hn::Zero(d);
    over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask) HWY_ATTR {
      const Vector share = hn::IfThenElseZero(mask, exp_above_floor(hn::Sub(load_part(own + i, left), offset)));
      store_part(r == 0 ? share : hn::Add(load_part(p + i, left), share), left, p + i);
      const Vector d_s = hn::Mul(share, hn::Sub(load_part(back.d_p + i, left), mean));
      total = hn::Add(total, d_s);
      float* key = back.d_key_term + r * back.key_stride + i;
      store_part(hn::Add(load_part(key, left), d_s), left, key);
      const Vector scaled = hn::Mul(d_s, factor);
      if (back.shared && r > 0) {
        store_part(hn::Add(load_part(scores + i, left), scaled), left, scores + i);
      } else {
        store_part(scaled, left, own + i);
      }
    });
    clear_outside(row, own);
    back.d_query_term[r * back.query_stride] = hn::GetLane(hn::SumOfLanes(d, total));
  }
  clear_outside(row, p);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Affine);
HWY_EXPORT(MixtureExp);
HWY_EXPORT(MixtureBackward);

float affine_row(const ScoreRow& row, const AffineRow& affine, const float* product, float* scores) {
  return HWY_DYNAMIC_DISPATCH(Affine)(row, affine, product, scores);
}
float mixture_exp_row(const ScoreRow& row, std::int64_t components, std::int64_t stride, float shift, float* scores) {
  return HWY_DYNAMIC_DISPATCH(MixtureExp)(row, components, stride, shift, scores);
}
void mixture_backward_row(const ScoreRow& row, const MixtureBackwardRow& back, float* scores, float* p) {
  HWY_DYNAMIC_DISPATCH(MixtureBackward)(row, back, scores, p);
}

}  // namespace headroom::kernels
#endif
