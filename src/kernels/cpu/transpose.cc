#include "headroom/kernels/cpu/transpose.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/transpose.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kStrip = 16;  // rows read together: what they become is one cache line of each result row

void OneByOne(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t i = 0; i < rows; ++i) {
      to.data[c * to.stride + i] = from.data[i * from.stride + c];
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
void Transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  OneByOne(from, rows, columns, to);
}
#else
HWY_INLINE void FourByFour(Strided<const float> from, Strided<float> to) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pairs;
  const auto r0 = hn::LoadU(d, from.data), r1 = hn::LoadU(d, from.data + from.stride),
             r2 = hn::LoadU(d, from.data + 2 * from.stride), r3 = hn::LoadU(d, from.data + 3 * from.stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
             low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3)),
             high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
             high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to.data);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to.data + to.stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to.data + 2 * to.stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to.data + 3 * to.stride);
}

void Transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to) {
  const std::int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (std::int64_t strip = 0; strip < whole_rows; strip += kStrip) {
    const std::int64_t end = std::min(strip + kStrip, whole_rows);
    for (std::int64_t c = 0; c < whole_columns; c += 4) {
      for (std::int64_t i = strip; i < end; i += 4) {
        FourByFour({from.data + i * from.stride + c, from.stride}, {to.data + c * to.stride + i, to.stride});
      }
    }
  }
  OneByOne({from.data + whole_columns, from.stride}, whole_rows, columns - whole_columns,
           {to.data + whole_columns * to.stride, to.stride});
  OneByOne({from.data + whole_rows * from.stride, from.stride}, rows - whole_rows, columns,
           {to.data + whole_rows, to.stride});
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
