#include "softmax_rows.h"

#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/softmax_rows.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"
#include "foundation/core/machine/system.h"
#include "score_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// (s + position) scale + bias - shift
template <class Lanes>
HWY_INLINE Vector finished(const Lanes& lanes, const ScoreRow& row, const float* scores, std::int64_t i,
                           const Vector shift) {
  const Vector scale = hn::Set(Tag(), row.scale);
  Vector s = lanes.load(scores + i);
  if (row.position != nullptr) {
    s = hn::Add(s, lanes.load(row.position + i));
  }
  s = hn::Mul(s, scale);
  return hn::Sub(row.bias == nullptr ? s : biased(s, lanes.load(row.bias + i)), shift);
}

float ExpRow(const ScoreRow& row, float* scores, float* sum) {
  const Tag d;
  const Vector lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Without position and bias, the maximum can be taken before scaling.
  const bool unmodified = row.position == nullptr && row.bias == nullptr && row.scale > 0.0F;
  Vector most = lowest;
  if (unmodified) {
    for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
      most = hn::Max(most, lanes.or_else(lanes.load(scores + i), lowest));
    });
  } else {
    for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
      const Vector s = finished(lanes, row, scores, i, hn::Zero(d));
      most = hn::Max(most, lanes.or_else(s, lowest));
      lanes.store(s, scores + i);
    });
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most)), scale = unmodified ? row.scale : 1.0F,
              maximum = scale * largest;
  if (maximum == -std::numeric_limits<float>::infinity() && !has_nan(row, scores)) {
    std::fill(scores, scores + row.n, 0.0F);
    *sum = 0.0F;
    return std::numeric_limits<float>::infinity();
  }
  const Vector top = hn::Set(d, largest),
               factor = hn::Set(d, scale);  // in this order the largest score becomes exactly 0
  Vector total = hn::Zero(d);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    const Vector p = lanes.or_else(exp_or_zero(hn::Mul(hn::Sub(lanes.load(scores + i), top), factor)), hn::Zero(d));
    total = hn::Add(total, p);
    lanes.store(p, scores + i);
  });
  clear_invisible(row, scores);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
  return maximum + std::log(*sum);
}

void ExpRowBackward(const ScoreRow& row, float log_sum, float delta, float* scores, float* d_p) {
  const Tag d;
  const Vector shift = hn::Set(d, log_sum), offset = hn::Set(d, delta), scale = hn::Set(d, row.scale);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    const Vector p = exp_or_zero(finished(lanes, row, scores, i, shift));
    lanes.store(p, scores + i);
    lanes.store(hn::Mul(hn::Mul(p, hn::Sub(lanes.load(d_p + i), offset)), scale), d_p + i);
  });
  clear_invisible(row, scores);
  clear_invisible(row, d_p);
}

void ProbabilityRow(const ScoreRow& row, float log_sum, float* scores) {
  const Vector shift = hn::Set(Tag(), log_sum);
  for_lanes(row.low, row.high, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    lanes.store(exp_or_zero(finished(lanes, row, scores, i, shift)), scores + i);
  });
  clear_invisible(row, scores);
}

template <class T>
HWY_INLINE float DotOf(const T* a, const T* b, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector total = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    total = hn::MulAdd(load_part(a + i, lanes), load_part(b + i, lanes), total);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, total));
  for (; i < n; ++i) {
    sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  }
  return sum;
}

float Dot(const Rows& a, const Rows& b, std::int64_t n) {
  return a.bf16 == nullptr ? DotOf(a.f32, b.f32, n) : DotOf(a.bf16, b.bf16, n);
}

void SoftmaxBackwardRow(const float* p, std::int64_t n, float factor, float* d_p) {
  const Tag d;
  const Vector delta = hn::Set(d, DotOf<float>(p, d_p, n)), f = hn::Set(d, factor);
  for_lanes(0, n, [&](const auto lanes, std::int64_t i) HWY_ATTR {
    const Vector weight = hn::Mul(lanes.load(p + i), f);
    lanes.store(hn::Mul(weight, hn::Sub(lanes.load(d_p + i), delta)), d_p + i);
  });
}

void ScaledCopy(const float* from, float factor, std::int64_t n, float* to) {
  const Vector f = hn::Set(Tag(), factor);
  for_lanes(0, n,
            [&](const auto lanes, std::int64_t i) HWY_ATTR { lanes.store(hn::Mul(lanes.load(from + i), f), to + i); });
}

float CrossEntropyRow(float* logits, const float* bias, std::int64_t n, std::int64_t target, float weight) {
  if (target < 0) {
    std::fill(logits, logits + n, 0.0F);
    return 0.0F;
  }
  float sum = 0.0F;
  const float biased = logits[target] + (bias == nullptr ? 0.0F : bias[target]);
  const float log_sum = ExpRow({0, n, n, 1.0F, nullptr, bias}, logits, &sum);
  ScaledCopy(logits, weight / sum, n, logits);
  logits[target] -= weight;
  return log_sum - biased;
}

const char* TargetName() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

namespace {

[[maybe_unused]] const bool kRestricted = [] {
#if HWY_ARCH_X86
  // Better instruction sets have lower bits.
  if (simd_limit() == "avx2") {
    hwy::DisableTargets(HWY_AVX2 - 1);
  }
#endif
  if (simd_limit() == "baseline") {
    hwy::DisableTargets(HWY_STATIC_TARGET - 1);
  }
  return true;
}();

}  // namespace

HWY_EXPORT(ExpRow);
HWY_EXPORT(ExpRowBackward);
HWY_EXPORT(ProbabilityRow);
HWY_EXPORT(SoftmaxBackwardRow);
HWY_EXPORT(CrossEntropyRow);
HWY_EXPORT(ScaledCopy);
HWY_EXPORT(Dot);
HWY_EXPORT(TargetName);

float exp_row(const ScoreRow& row, float* scores, float* sum) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(row, scores, sum);
}
void exp_row_backward(const ScoreRow& row, float log_sum, float d, float* scores, float* d_p) {
  HWY_DYNAMIC_DISPATCH(ExpRowBackward)(row, log_sum, d, scores, d_p);
}
void probability_row(const ScoreRow& row, float log_sum, float* scores) {
  HWY_DYNAMIC_DISPATCH(ProbabilityRow)(row, log_sum, scores);
}
void softmax_backward_row(const float* p, std::int64_t n, float factor, float* d_p) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRow)(p, n, factor, d_p);
}
float cross_entropy_row(float* logits, const float* bias, std::int64_t n, std::int64_t target, float weight) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropyRow)(logits, bias, n, target, weight);
}
void scaled_copy(const float* from, float factor, std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(ScaledCopy)(from, factor, n, to);
}
float dot(const Rows& a, const Rows& b, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Dot)(a, b, n);
}
const char* simd_target() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace headroom::kernels
#endif
