#include "headroom/kernels/cpu/row_terms.h"

#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/vector_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_terms.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

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

HWY_EXPORT(TermsBackward);

void row_terms(const RowTerms& in, float* terms) {
  for (std::int64_t i = 0; i < in.n; ++i) {
    const float* row = in.rows.data + i * in.rows.stride;
    terms[i] = dot(row, row, in.e);
  }
  for (std::int64_t r = 0; r < in.directions; ++r) {
    vector_times_columns(in.direction + r * in.e, in.e, in.rows, 0, in.n, terms + (1 + r) * in.n);
  }
}
void row_terms_backward(const RowTerms& in, const float* d_terms, Strided<float> d_rows, float* d_direction) {
  HWY_DYNAMIC_DISPATCH(TermsBackward)(in, d_terms, d_rows, d_direction);
}

}  // namespace headroom::kernels
#endif
