#include "row_maximum.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/row_maximum.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

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

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Maximum);

RowMaximum row_maximum(const float* row, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Maximum)(row, n);
}

}  // namespace headroom::kernels
#endif
