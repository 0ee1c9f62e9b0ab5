#include "mixture_rows.h"

#include <algorithm>

#include "engine/kernels/cpu/matmul/gemv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/mixture/mixture_rows.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "engine/kernels/cpu/attention/score_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// Computes s_r for a SIMD vector of keys. Components = 0: known only at run time.
template <int Components, bool Maximum>
struct ComponentScores {
  static constexpr int kRoom = Components > 0 ? Components : kMostComponents;
  static constexpr bool kMaximum = Maximum;
  const ScoreRow& row;
  const MixtureRow& mixture;

  HWY_INLINE std::int64_t components() const { return Components > 0 ? Components : mixture.components; }
  template <class Lanes>
  HWY_INLINE Vector at(const Lanes& lanes, std::int64_t r, std::int64_t i) const {
    const Tag d;
    const Vector own = hn::Add(lanes.load(mixture.key_term + r * mixture.key_stride + i),
                               hn::Set(d, mixture.query_term[r * mixture.query_stride]));
    const Vector product = lanes.load(mixture.product + r * mixture.product_stride + i);
    const Vector s = hn::MulAdd(hn::Set(d, mixture.factor[r]), product, own);
    return row.bias == nullptr ? s : biased(s, lanes.load(row.bias + i));
  }
  template <class Lanes>
  HWY_INLINE Vector largest(const Lanes& lanes, std::int64_t i) const {
    Vector top = at(lanes, 0, i);
    for (std::int64_t r = 1; r < components(); ++r) {
      top = hn::Max(top, at(lanes, r, i));
    }
    return top;
  }
  // Returns the keys' weights times exp(-shift).
  template <class Lanes>
  HWY_INLINE Vector weight(const Lanes& lanes, std::int64_t i, const Vector shift) const {
    if (Maximum) {
      return exp_or_zero(hn::Sub(largest(lanes, i), shift));
    }
    Vector sum = hn::Zero(Tag());
    for (std::int64_t r = 0; r < components(); ++r) {
      sum = hn::Add(sum, exp_or_zero(hn::Sub(at(lanes, r, i), shift)));
    }
    return sum;
  }
  // Computes each component's part of the weight.
  template <class Lanes>
  HWY_INLINE void parts(const Lanes& lanes, std::int64_t i, const Vector shift, Vector* part) const {
    const Tag d;
    if (!Maximum) {
      for (std::int64_t r = 0; r < components(); ++r) {
        part[r] = exp_or_zero(hn::Sub(at(lanes, r, i), shift));
      }
      return;
    }
    const Vector top = largest(lanes, i), one = hn::Set(d, 1.0F);
    Vector reach = hn::Zero(d);
    for (std::int64_t r = 0; r < components(); ++r) {
      part[r] = hn::IfThenElseZero(hn::Eq(at(lanes, r, i), top), one);
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
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    top = hn::Max(top, lanes.or_else(scores.largest(lanes, i), lowest));
  });
  *most = hn::GetLane(hn::MaxOfLanes(d, top));
  const Vector shift = hn::Set(d, *most > -std::numeric_limits<float>::infinity() ? *most : 0.0F);
  Vector total = hn::Zero(d);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    const Vector w = lanes.or_else(scores.weight(lanes, i, shift), hn::Zero(d));
    total = hn::Add(total, w);
    lanes.store(w, to + i);
  });
  clear_invisible(row, to);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

// Accumulates the backward pass of the components' scores.
template <class S>
struct Spread {
  const MixtureRow& mixture;
  const MixtureBackwardRow& back;
  float* d_product;
  Vector total[S::kRoom];

  HWY_INLINE Spread(const S& scores, const MixtureBackwardRow& b, float* d)
      : mixture(scores.mixture), back(b), d_product(d) {
    std::fill_n(total, scores.components(), hn::Zero(Tag()));
  }
  HWY_INLINE bool shared() const { return mixture.product_stride == 0; }

  // Computes d_s_r = part_r g. Returns the sum of the parts.
  template <class Lanes>
  HWY_INLINE Vector add(const S& scores, const Lanes& lanes, std::int64_t i, const Vector* part, const Vector g) {
    const Tag d;
    Vector weight = hn::Zero(d), sum = hn::Zero(d);
    for (std::int64_t r = 0; r < scores.components(); ++r) {
      const Vector own = lanes.or_else(part[r], hn::Zero(d)), d_s = hn::Mul(own, g);
      const Vector factor = hn::Set(d, mixture.factor[r]);
      weight = hn::Add(weight, own);
      total[r] = hn::Add(total[r], d_s);
      float* key = back.d_key_term + r * back.key_stride + i;
      lanes.store(hn::Add(lanes.load(key), d_s), key);
      if (shared()) {
        sum = hn::MulAdd(d_s, factor, sum);
      } else {
        lanes.store(hn::Mul(d_s, factor), d_product + r * mixture.product_stride + i);
      }
    }
    if (shared()) {
      lanes.store(sum, d_product + i);
    }
    return weight;
  }

  HWY_INLINE void finish(const S& scores, const ScoreRow& row) {
    for (std::int64_t r = 0; r < scores.components(); ++r) {
      back.d_query_term[r * mixture.query_stride] = hn::GetLane(hn::SumOfLanes(Tag(), total[r]));
      if (!shared() || r == 0) {
        clear_invisible(row, d_product + r * mixture.product_stride);
      }
    }
  }
};

template <class S>
HWY_INLINE void BackOf(const ScoreRow row, const MixtureRow mixture, const MixtureBackwardRow back, float* d_product,
                       float* p) {
  const Tag d;
  const S scores{row, mixture};
  const Vector shift = hn::Set(d, back.log_sum), delta = hn::Set(d, back.delta);
  Spread<S> spread(scores, back, d_product);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    const Vector g = hn::Sub(lanes.load(back.d_p + i), delta);
    Vector part[S::kRoom];
    scores.parts(lanes, i, shift, part);
    lanes.store(spread.add(scores, lanes, i, part, g), p + i);
  });
  spread.finish(scores, row);
  clear_invisible(row, p);
}

template <class S, class Lanes>
HWY_INLINE Vector content(const S& scores, const Lanes& lanes, std::int64_t i) {
  const Vector top = scores.largest(lanes, i);
  return S::kMaximum ? top : hn::Add(top, hn::Log(Tag(), scores.weight(lanes, i, top)));
}

template <class S>
HWY_INLINE void ContentOf(const ScoreRow row, const MixtureRow mixture, float* to) {
  const S scores{row, mixture};
  for_lanes(row.low, row.high,
            [&](const auto lanes, std::int64_t i) HWY_ATTR { lanes.store(content(scores, lanes, i), to + i); });
  clear_invisible(row, to);
}

template <class S>
HWY_INLINE void ContentBackOf(const ScoreRow row, const MixtureRow mixture, const MixtureBackwardRow back,
                              float* d_product) {
  const S scores{row, mixture};
  Spread<S> spread(scores, back, d_product);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    Vector part[S::kRoom], sum = hn::Zero(Tag());
    scores.parts(lanes, i, scores.largest(lanes, i), part);
    for (std::int64_t r = 0; r < scores.components(); ++r) {
      sum = hn::Add(sum, part[r]);
    }
    spread.add(scores, lanes, i, part, hn::Div(lanes.load(back.d_p + i), sum));
  });
  spread.finish(scores, row);
}

float MixtureExp(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to) {
  if (mixture.maximum) {
    return ExpOf<ComponentScores<0, true>>(row, mixture, most, to);
  }
  return mixture.components == 2 ? ExpOf<ComponentScores<2, false>>(row, mixture, most, to)
                                 : ExpOf<ComponentScores<0, false>>(row, mixture, most, to);
}

void MixtureBackward(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back, float* d_product,
                     float* p) {
  if (mixture.maximum) {
    BackOf<ComponentScores<0, true>>(row, mixture, back, d_product, p);
  } else if (mixture.components == 2) {
    BackOf<ComponentScores<2, false>>(row, mixture, back, d_product, p);
  } else {
    BackOf<ComponentScores<0, false>>(row, mixture, back, d_product, p);
  }
}

void MixtureContent(const ScoreRow& row, const MixtureRow& mixture, float* to) {
  if (mixture.maximum) {
    ContentOf<ComponentScores<0, true>>(row, mixture, to);
  } else if (mixture.components == 2) {
    ContentOf<ComponentScores<2, false>>(row, mixture, to);
  } else {
    ContentOf<ComponentScores<0, false>>(row, mixture, to);
  }
}

void MixtureContentBackward(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                            float* d_product) {
  if (mixture.maximum) {
    ContentBackOf<ComponentScores<0, true>>(row, mixture, back, d_product);
  } else if (mixture.components == 2) {
    ContentBackOf<ComponentScores<2, false>>(row, mixture, back, d_product);
  } else {
    ContentBackOf<ComponentScores<0, false>>(row, mixture, back, d_product);
  }
}

template <class T>
HWY_INLINE void LengthsOf(const RowTermsInput& in, const T* rows, float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < in.n; ++i) {
    const T* row = rows + i * in.rows.stride;
    Vector sum = hn::Zero(d);
    for (std::int64_t c = 0; c < in.e; c += lanes) {
      const Vector t = load_part(row + c, in.e - c);
      sum = hn::MulAdd(t, t, sum);
    }
    to[i] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void Lengths(const RowTermsInput& in, float* to) {
  in.rows.bf16 == nullptr ? LengthsOf(in, in.rows.f32, to) : LengthsOf(in, in.rows.bf16, to);
}

template <class T>
HWY_INLINE void TermsBackwardOf(const RowTermsInput& in, const T* rows, const float* d_terms, Strided<T> d_rows,
                                float* d_direction) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < in.n; ++i) {
    const T* row = rows + i * in.rows.stride;
    T* d_row = d_rows.data + i * d_rows.stride;
    for (std::int64_t c = 0; c < in.e; c += lanes) {
      const std::int64_t left = in.e - c;
      const Vector t = load_part(row + c, left);
      Vector sum = hn::Mul(t, hn::Set(d, 2.0F * d_terms[i]));
      for (std::int64_t r = 0; r < in.directions; ++r) {
        const Vector g = hn::Set(d, d_terms[(1 + r) * in.n + i]);
        const std::int64_t at = r * in.e + c;
        sum = hn::MulAdd(g, load_part(in.direction + at, left), sum);
        store_part(hn::MulAdd(g, t, load_part(d_direction + at, left)), left, d_direction + at);
      }
      store_part(sum, left, d_row + c);
    }
  }
}

void TermsBackward(const RowTermsInput& in, const float* d_terms, const RowsOut& d_rows, float* d_direction) {
  if (in.rows.bf16 == nullptr) {
    TermsBackwardOf(in, in.rows.f32, d_terms, Strided<float>{d_rows.f32, d_rows.stride}, d_direction);
  } else {
    TermsBackwardOf(in, in.rows.bf16, d_terms, Strided<c10::BFloat16>{d_rows.bf16, d_rows.stride}, d_direction);
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MixtureExp);
HWY_EXPORT(MixtureBackward);
HWY_EXPORT(MixtureContent);
HWY_EXPORT(MixtureContentBackward);

float mixture_exp_row(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to) {
  return HWY_DYNAMIC_DISPATCH(MixtureExp)(row, mixture, most, to);
}
void mixture_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                          float* d_product, float* p) {
  HWY_DYNAMIC_DISPATCH(MixtureBackward)(row, mixture, back, d_product, p);
}

void mixture_content_row(const ScoreRow& row, const MixtureRow& mixture, float* to) {
  HWY_DYNAMIC_DISPATCH(MixtureContent)(row, mixture, to);
}
void mixture_content_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                                  float* d_product) {
  HWY_DYNAMIC_DISPATCH(MixtureContentBackward)(row, mixture, back, d_product);
}

HWY_EXPORT(Lengths);
HWY_EXPORT(TermsBackward);

void row_terms(const RowTermsInput& in, float* terms) {
  HWY_DYNAMIC_DISPATCH(Lengths)(in, terms);
  for (std::int64_t r = 0; r < in.directions; ++r) {
    gemv_transposed(in.direction + r * in.e, in.e, in.rows, in.n, terms + (1 + r) * in.n);
  }
}
void row_terms_backward(const RowTermsInput& in, const float* d_terms, const RowsOut& d_rows, float* d_direction) {
  HWY_DYNAMIC_DISPATCH(TermsBackward)(in, d_terms, d_rows, d_direction);
}

}  // namespace headroom::kernels
#endif
