#include "headroom/kernels/cpu/row_terms.h"

#include "headroom/kernels/cpu/vector_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_terms.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE void LengthsOf(const RowTermsOf<T>& in, float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < in.n; ++i) {
    const T* row = in.rows.data + i * in.rows.stride;
    Vector sum = hn::Zero(d);
    for (std::int64_t c = 0; c < in.e; c += lanes) {
      const Vector t = load_part(row + c, in.e - c);
      sum = hn::MulAdd(t, t, sum);
    }
    to[i] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void Lengths(const RowTerms& in, float* to) {
  LengthsOf(in, to);
}
void HalfLengths(const RowTermsOf<c10::BFloat16>& in, float* to) {
  LengthsOf(in, to);
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

HWY_EXPORT(Lengths);
HWY_EXPORT(HalfLengths);
HWY_EXPORT(TermsBackward);

namespace {

template <class T>
void products_with_directions(const RowTermsOf<T>& in, float* to) {
  for (std::int64_t r = 0; r < in.directions; ++r) {
    vector_times_columns(in.direction + r * in.e, in.e, in.rows, 0, in.n, to + r * in.n);
  }
}

}  // namespace

void row_terms(const RowTerms& in, float* terms) {
  HWY_DYNAMIC_DISPATCH(Lengths)(in, terms);
  products_with_directions(in, terms + in.n);
}
void row_terms(const RowTermsOf<BFloat16>& in, float* terms) {
  HWY_DYNAMIC_DISPATCH(HalfLengths)(in, terms);
  products_with_directions(in, terms + in.n);
}
void row_terms_backward(const RowTerms& in, const float* d_terms, Strided<float> d_rows, float* d_direction) {
  HWY_DYNAMIC_DISPATCH(TermsBackward)(in, d_terms, d_rows, d_direction);
}

}  // namespace headroom::kernels
#endif
