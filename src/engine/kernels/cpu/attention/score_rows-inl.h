// Shared by the kernels on score rows. Included once per instruction set.
#if defined(HEADROOM_KERNELS_SCORE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#undef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#else
#define HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels/cpu/vectors-inl.h"
#include "softmax_rows.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// exp() of anything lower is flushed to 0.
constexpr float kLowest = -87.0F;

// exp(x) with an error of at most 1.3 ulp; 0 for x below kLowest, NaN for NaN. x is a score minus the maximum, positive
// only by rounding (which is large if scores are huge), and is clamped to 0. x = n log 2 + r with |r| <= log 2 / 2;
// exp(r) is the minimax polynomial (relative error) that begins with 1 + r.
HWY_INLINE Vector exp_or_zero(const Vector given) {
  const Tag d;
  const Vector x = hn::IfThenElse(hn::Gt(given, hn::Zero(d)), hn::Zero(d), given);  // unlike Min(), keeps NaN
  const hn::RebindToUnsigned<Tag> bits;
  const Vector round = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vector shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), round), n = hn::Sub(shifted, round);
  // log 2 in two parts, the first with few enough bits that its product with n is exact.
  const Vector r = hn::MulAdd(n, hn::Set(d, -1.428606765e-6F), hn::MulAdd(n, hn::Set(d, -0.693145751953125F), x));
  Vector p = hn::Set(d, 0.00138146F);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836872F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166839F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666521F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999993F));
  p = hn::MulAdd(hn::Mul(p, r), r, hn::Add(r, hn::Set(d, 1.0F)));
  const auto scaled = hn::Add(hn::BitCast(bits, p), hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenZeroElse(hn::Lt(given, hn::Set(d, kLowest)), hn::BitCast(d, scaled));
}

// score + bias; a bias of -infinity hides the key even if its score is NaN.
HWY_INLINE Vector biased(const Vector score, const Vector bias) {
  const Vector hidden = hn::Set(Tag(), -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Eq(bias, hidden), bias, hn::Add(score, bias));
}

// Whether the row has a NaN among its visible scores.
inline bool has_nan(const ScoreRow& row, const float* scores) {
  return std::any_of(scores + row.low, scores + row.high, [](float score) { return std::isnan(score); });
}

HWY_INLINE void clear_invisible(const ScoreRow& row, float* values) {
  std::fill(values, values + row.low, 0.0F);
  std::fill(values + row.high, values + row.n, 0.0F);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
