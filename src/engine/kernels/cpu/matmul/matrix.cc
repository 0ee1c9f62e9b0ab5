#include "matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/matmul/matrix.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void TransposeScalar(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t i = 0; i < rows; ++i) {
      to.data[c * to.stride + i] = from.data[i * from.stride + c];
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
void Transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  TransposeScalar(from, rows, columns, to);
}
#else
// Loads four columns of rows 0, 4, 8, ... into the vector's 128-bit blocks.
template <class D>
HWY_INLINE hn::Vec<D> EveryFourth(const D d, const float* from, std::int64_t stride) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto all = hn::LoadDup128(d, from);
  for (std::int64_t i = 4; i < lanes; i += 4) {
    const auto here = hn::Ge(hn::Iota(d, 0.0F), hn::Set(d, static_cast<float>(i)));
    all = hn::IfThenElse(here, hn::LoadDup128(d, from + i * stride), all);
  }
  return all;
}

// Transposes Lanes(d) rows of four columns, as blocks of 4 x 4 in the vectors' 128-bit blocks.
template <class D>
HWY_INLINE void TransposeFourColumns(const D d, Strided<const float> from, Strided<float> to) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<D> > pairs;
  const auto pair = [&](auto v) HWY_ATTR { return hn::BitCast(pairs, v); };
  const auto r0 = EveryFourth(d, from.data, from.stride), r1 = EveryFourth(d, from.data + from.stride, from.stride),
             r2 = EveryFourth(d, from.data + 2 * from.stride, from.stride),
             r3 = EveryFourth(d, from.data + 3 * from.stride, from.stride);
  const auto low01 = pair(hn::InterleaveLower(d, r0, r1)), low23 = pair(hn::InterleaveLower(d, r2, r3)),
             high01 = pair(hn::InterleaveUpper(d, r0, r1)), high23 = pair(hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to.data);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to.data + to.stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to.data + 2 * to.stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to.data + 3 * to.stride);
}

// Transposes rows from `row` on in groups of Lanes(d). Returns the first row that is left over.
template <class D>
HWY_INLINE std::int64_t TransposeRows(const D d, Strided<const float> from, std::int64_t row, std::int64_t rows,
                                      std::int64_t columns, Strided<float> to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; row + lanes <= rows; row += lanes) {
    for (std::int64_t c = 0; c < columns; c += 4) {
      TransposeFourColumns(d, {from.data + row * from.stride + c, from.stride},
                           {to.data + c * to.stride + row, to.stride});
    }
  }
  return row;
}

void Transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  const std::int64_t whole_columns = columns / 4 * 4;
  std::int64_t row = TransposeRows(hn::ScalableTag<float>(), from, 0, rows, whole_columns, to);
  row = TransposeRows(hn::FixedTag<float, 4>(), from, row, rows, whole_columns, to);
  TransposeScalar({from.data + whole_columns, from.stride}, row, columns - whole_columns,
                  {to.data + whole_columns * to.stride, to.stride});
  TransposeScalar({from.data + row * from.stride, from.stride}, rows - row, columns, {to.data + row, to.stride});
}
#endif

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Transpose);

void transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, rows, columns, to);
}

}  // namespace headroom::kernels
#endif
