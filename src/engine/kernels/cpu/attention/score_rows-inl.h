// What every kernel of score rows needs. Included once for each instruction set.
#if defined(HEADROOM_KERNELS_SCORE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#undef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#else
#define HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#endif

#include <algorithm>

#include "engine/kernels/cpu/partial-inl.h"
#include "softmax_rows.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// Scores below this make exp() 0 in float.
constexpr float kLowest = -87.0F;

// exp(x) to 1.3 units in the last place; 0 below kLowest and of NaN. No score is above what it is compared with but by
// rounding, which is much where scores are huge: x above 0 is taken for 0. x = n log 2 + r with |r| at most log 2 / 2;
// exp(r) is the polynomial of the least relative error that begins with 1 + r.
HWY_INLINE Vector exp_or_zero(const Vector given) {
  const Tag d;
  const Vector x = hn::Min(given, hn::Zero(d));
  const hn::RebindToUnsigned<Tag> bits;
  const Vector round = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const Vector shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), round), n = hn::Sub(shifted, round);
  // log 2 in two parts, the first of so few bits that n times it is exact.
  const Vector r = hn::MulAdd(n, hn::Set(d, -1.428606765e-6F), hn::MulAdd(n, hn::Set(d, -0.693145751953125F), x));
  Vector p = hn::Set(d, 0.00138146F);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836872F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166839F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666521F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999993F));
  p = hn::MulAdd(hn::Mul(p, r), r, hn::Add(r, hn::Set(d, 1.0F)));
  const auto scaled = hn::Add(hn::BitCast(bits, p), hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenElseZero(hn::Ge(given, hn::Set(d, kLowest)), hn::BitCast(d, scaled));
}

HWY_INLINE void clear_invisible(const ScoreRow& row, float* values) {
  std::fill(values, values + row.low, 0.0F);
  std::fill(values + row.high, values + row.n, 0.0F);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
