// What every kernel of score rows needs. Included once for each instruction set.
#if defined(HEADROOM_KERNELS_SCORE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#undef HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#else
#define HEADROOM_KERNELS_SCORE_ROWS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>

#include "headroom/kernels/cpu/softmax_rows.h"
#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// Scores below this make exp() 0 in float; the vector exp is exact above it.
constexpr float kLowest = -87.0F;

HWY_INLINE Vector exp_or_zero(const Vector x) {
  const Tag d;
  const Vector lowest = hn::Set(d, kLowest);
  return hn::IfThenElseZero(hn::Ge(x, lowest), hn::Exp(d, hn::Max(x, lowest)));
}

HWY_INLINE void clear_invisible(const ScoreRow& row, float* values) {
  std::fill(values, values + row.low, 0.0F);
  std::fill(values + row.high, values + row.n, 0.0F);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
