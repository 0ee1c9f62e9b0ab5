#include "headroom/kernels/cpu/grouped_product.h"

#include <algorithm>

#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/tile_product.h"
#include "headroom/kernels/cpu/vector_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/grouped_product.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

void CombineRows(const float* block, std::int64_t width, const std::int64_t* place, const float* weight, std::int64_t n,
                 float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < width; c += lanes) {
    Vector sum = hn::Zero(d);
    for (std::int64_t j = 0; j < n; ++j) {
      const Vector row = load_part(block + place[j] * width + c, width - c);
      sum = weight == nullptr ? hn::Add(sum, row) : hn::MulAdd(hn::Set(d, weight[j]), row, sum);
    }
    store_part(sum, width - c, to + c);
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(CombineRows);

namespace {

constexpr std::int64_t kOuterRows = 256;  // rows whose outer products are summed before the sum goes back to memory

float* room(Buffer& buffer, std::int64_t n) {
  buffer.make_room(n);
  return buffer.data();
}

// Columns [begin, end) of the chosen rows.
void gather(const ChosenRows& rows, const Choices& choices, std::int64_t begin, std::int64_t end, float* block) {
  const std::int64_t width = end - begin;
  for (std::int64_t i = 0; i < choices.count; ++i) {
    if (choices.choice[i] == kNoChoice) {
      std::fill_n(block + i * width, width, 0.0F);
    } else {
      std::copy_n(rows.row_of(choices.choice[i]) + begin, width, block + i * width);
    }
  }
}

}  // namespace

void grouped_product(const ChosenRows& rows, const Choices& choices, std::int64_t k, Strided<const float> b, float* to,
                     GroupedWorkspace& work) {
  const std::int64_t n = b.stride;
  if (choices.count == 1 && *choices.choice != kNoChoice) {
    vector_times_rows(rows.row_of(*choices.choice), k, b, 0, n, to);
    return;
  }
  float* block = room(work.left, choices.count * k);
  gather(rows, choices, 0, k, block);
  tile_product({choices.count, n, k, k, n, n}, block, b.data, to);
}

void grouped_outer_product(const OuterProduct& product, const Choices& choices, Strided<float> to,
                           GroupedWorkspace& work) {
  const OuterSide &left = product.left, &right = product.right;
  const std::int64_t m = left.width(), n = right.width();
  float* rows = room(work.left, kOuterRows * m);
  float* columns = room(work.columns, kOuterRows * m);
  float* others = room(work.right, kOuterRows * n);
  const Strided<float> sum = product.transposed ? Strided<float>{room(work.sum, m * n), n} : to;
  for (std::int64_t begin = 0; begin < choices.count; begin += kOuterRows) {
    const Choices some{choices.choice + begin, std::min(kOuterRows, choices.count - begin)};
    gather(left.rows, some, left.begin, left.end, rows);
    for (std::int64_t i = 0; product.weight != nullptr && i < some.count; ++i) {
      if (some.choice[i] != kNoChoice) {
        scaled_copy(rows + i * m, product.weight[some.choice[i]], m, rows + i * m);
      }
    }
    transpose({rows, m}, some.count, m, {columns, some.count});
    gather(right.rows, some, right.begin, right.end, others);
    tile_product({m, n, some.count, some.count, n, sum.stride, begin > 0}, columns, others, sum.data);
  }
  if (product.transposed) {
    transpose({sum.data, sum.stride}, m, n, to);
  }
}

void combine_rows(const float* block, std::int64_t width, const std::int64_t* place, const float* weight,
                  std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(CombineRows)(block, width, place, weight, n, to);
}

}  // namespace headroom::kernels
#endif
