#include "headroom/kernels/cpu/row_terms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_terms.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

HWY_INLINE float product(const float* a, const float* b, std::int64_t e) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum = hn::Zero(d);
  for (std::int64_t c = 0; c < e; c += lanes) {
    sum = hn::MulAdd(load_part(a + c, e - c), load_part(b + c, e - c), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void Terms(const RowTerms& in, float* terms) {
  for (std::int64_t i = 0; i < in.n; ++i) {
    const float* row = in.rows.data + i * in.rows.stride;
    terms[i] = product(row, row, in.e);
    for (std::int64_t r = 0; r < in.directions; ++r) {
      terms[(1 + r) * in.n + i] = product(row, in.direction + r * in.e, in.e);
    }
  }
}

void TermsBackward(const RowTerms& in, const float* d_terms, Strided<float> d_rows, float* d_direction) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < in.n; ++i) {
    const float* row = in.rows.data + i * in.rows.stride;
    float* d_row = d_rows.data + i * d_rows.stride;
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

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Terms);
HWY_EXPORT(TermsBackward);

void row_terms(const RowTerms& in, float* terms) {
  HWY_DYNAMIC_DISPATCH(Terms)(in, terms);
}
void row_terms_backward(const RowTerms& in, const float* d_terms, Strided<float> d_rows, float* d_direction) {
  HWY_DYNAMIC_DISPATCH(TermsBackward)(in, d_terms, d_rows, d_direction);
}

}  // namespace headroom::kernels
#endif
