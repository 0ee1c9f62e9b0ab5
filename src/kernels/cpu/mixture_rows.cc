#include "headroom/kernels/cpu/mixture_rows.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mixture_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/score_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

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

// s_r of some keys. Components = 0: known only at run time.
template <int Components, bool Maximum>
struct Scores {
  static constexpr int kRoom = Components > 0 ? Components : kMostComponents;
  const ScoreRow& row;
  const MixtureRow& mixture;

  HWY_INLINE std::int64_t components() const { return Components > 0 ? Components : mixture.components; }
  HWY_INLINE Vector at(std::int64_t r, std::int64_t i, std::int64_t left) const {
    const Tag d;
    const Vector own = hn::Add(load_part(mixture.key_term + r * mixture.key_stride + i, left),
                               hn::Set(d, mixture.query_term[r * mixture.query_stride]));
    const Vector product = load_part(mixture.product + r * mixture.product_stride + i, left);
    const Vector s = hn::MulAdd(hn::Set(d, mixture.factor[r]), product, own);
    return row.bias == nullptr ? s : hn::Add(s, load_part(row.bias + i, left));
  }
  HWY_INLINE Vector largest(std::int64_t i, std::int64_t left) const {
    Vector top = at(0, i, left);
    for (std::int64_t r = 1; r < components(); ++r) {
      top = hn::Max(top, at(r, i, left));
    }
    return top;
  }
  // The weight of some keys times exp(-shift).
  HWY_INLINE Vector weight(std::int64_t i, std::int64_t left, const Vector shift) const {
    if (Maximum) {
      return exp_or_zero(hn::Sub(largest(i, left), shift));
    }
    Vector sum = hn::Zero(Tag());
    for (std::int64_t r = 0; r < components(); ++r) {
      sum = hn::Add(sum, exp_or_zero(hn::Sub(at(r, i, left), shift)));
    }
    return sum;
  }
  // Each component's part of the weight.
  HWY_INLINE void parts(std::int64_t i, std::int64_t left, const Vector shift, Vector* part) const {
    const Tag d;
    if (!Maximum) {
      for (std::int64_t r = 0; r < components(); ++r) {
        part[r] = exp_or_zero(hn::Sub(at(r, i, left), shift));
      }
      return;
    }
    const Vector top = largest(i, left), one = hn::Set(d, 1.0F);
    Vector reach = hn::Zero(d);
    for (std::int64_t r = 0; r < components(); ++r) {
      part[r] = hn::IfThenElseZero(hn::Eq(at(r, i, left), top), one);
      reach = hn::Add(reach, part[r]);
    }
    const Vector share = hn::Div(exp_or_zero(hn::Sub(top, shift)), reach);
    for (std::int64_t r = 0; r < components(); ++r) {
      part[r] = hn::Mul(part[r], share);
    }
  }
};

template <class S>
HWY_INLINE float ExpOf(const ScoreRow row, const MixtureRow mixture, float* most, float* to) {
  const Tag d;
  const S scores{row, mixture};
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vector top = lowest;
  over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask)
                        HWY_ATTR { top = hn::Max(top, hn::IfThenElse(mask, scores.largest(i, left), lowest)); });
  *most = hn::GetLane(hn::MaxOfLanes(d, top));
  const Vector shift = hn::Set(d, *most > -std::numeric_limits<float>::infinity() ? *most : 0.0F);
  Vector total = hn::Zero(d);
  over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask) HWY_ATTR {
    const Vector w = hn::IfThenElseZero(mask, scores.weight(i, left, shift));
    total = hn::Add(total, w);
    store_part(w, left, to + i);
  });
  clear_invisible(row, to);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

template <class S>
HWY_INLINE void BackOf(const ScoreRow row, const MixtureRow mixture, const MixtureBackwardRow back, float* d_product,
                       float* p) {
  const Tag d;
  const S scores{row, mixture};
  const Vector offset = hn::Set(d, back.log_sum), mean = hn::Set(d, back.mean);
  const bool shared = mixture.product_stride == 0;
  Vector total[S::kRoom];
  std::fill_n(total, scores.components(), hn::Zero(d));
  over_visible(row, [&](std::int64_t i, std::int64_t left, auto mask) HWY_ATTR {
    const Vector g = hn::Sub(load_part(back.d_p + i, left), mean);
    Vector weight = hn::Zero(d), sum = hn::Zero(d), part[S::kRoom];
    scores.parts(i, left, offset, part);
    for (std::int64_t r = 0; r < scores.components(); ++r) {
      const Vector own = hn::IfThenElseZero(mask, part[r]), d_s = hn::Mul(own, g);
      const Vector factor = hn::Set(d, mixture.factor[r]);
      weight = hn::Add(weight, own);
      total[r] = hn::Add(total[r], d_s);
      float* key = back.d_key_term + r * back.key_stride + i;
      store_part(hn::Add(load_part(key, left), d_s), left, key);
      if (shared) {
        sum = hn::MulAdd(d_s, factor, sum);
      } else {
        store_part(hn::Mul(d_s, factor), left, d_product + r * mixture.product_stride + i);
      }
    }
    store_part(weight, left, p + i);
    if (shared) {
      store_part(sum, left, d_product + i);
    }
  });
  for (std::int64_t r = 0; r < scores.components(); ++r) {
    back.d_query_term[r * mixture.query_stride] = hn::GetLane(hn::SumOfLanes(d, total[r]));
    if (!shared || r == 0) {
      clear_invisible(row, d_product + r * mixture.product_stride);
    }
  }
  clear_invisible(row, p);
}

float MixtureExp(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to) {
  if (mixture.maximum) {
    return ExpOf<Scores<0, true>>(row, mixture, most, to);
  }
  return mixture.components == 2 ? ExpOf<Scores<2, false>>(row, mixture, most, to)
                                 : ExpOf<Scores<0, false>>(row, mixture, most, to);
}

void MixtureBackward(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back, float* d_product,
                     float* p) {
  if (mixture.maximum) {
    BackOf<Scores<0, true>>(row, mixture, back, d_product, p);
  } else if (mixture.components == 2) {
    BackOf<Scores<2, false>>(row, mixture, back, d_product, p);
  } else {
    BackOf<Scores<0, false>>(row, mixture, back, d_product, p);
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MixtureExp);
HWY_EXPORT(MixtureBackward);

float mixture_exp_row(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to) {
  return HWY_DYNAMIC_DISPATCH(MixtureExp)(row, mixture, most, to);
}
void mixture_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                          float* d_product, float* p) {
  HWY_DYNAMIC_DISPATCH(MixtureBackward)(row, mixture, back, d_product, p);
}

}  // namespace headroom::kernels
#endif
