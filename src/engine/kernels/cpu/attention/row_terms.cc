#include "row_terms.h"

#include "engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/row_terms.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/products/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE void LengthsOf(const RowTerms& in, const T* rows, float* to) {
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

void Lengths(const RowTerms& in, float* to) {
  in.rows.half == nullptr ? LengthsOf(in, in.rows.single, to) : LengthsOf(in, in.rows.half, to);
}

template <class T>
HWY_INLINE void TermsBackwardOf(const RowTerms& in, const T* rows, const float* d_terms, Strided<T> d_rows,
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

void TermsBackward(const RowTerms& in, const float* d_terms, const RowsOut& d_rows, float* d_direction) {
  if (in.rows.half == nullptr) {
    TermsBackwardOf(in, in.rows.single, d_terms, Strided<float>{d_rows.single, d_rows.stride}, d_direction);
  } else {
    TermsBackwardOf(in, in.rows.half, d_terms, Strided<c10::BFloat16>{d_rows.half, d_rows.stride}, d_direction);
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Lengths);
HWY_EXPORT(TermsBackward);

void row_terms(const RowTerms& in, float* terms) {
  HWY_DYNAMIC_DISPATCH(Lengths)(in, terms);
  for (std::int64_t r = 0; r < in.directions; ++r) {
    detail::vector_times_columns(in.direction + r * in.e, in.e, in.rows, in.n, terms + (1 + r) * in.n);
  }
}
void row_terms_backward(const RowTerms& in, const float* d_terms, const RowsOut& d_rows, float* d_direction) {
  HWY_DYNAMIC_DISPATCH(TermsBackward)(in, d_terms, d_rows, d_direction);
}

}  // namespace headroom::kernels
#endif
