#include "grouped_product.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/grouped_product.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE void CombineOf(const PlacedRows& rows, const T* block, T* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < rows.width; c += lanes) {
    const std::int64_t left = rows.width - c;
    Vector sum = hn::Zero(d);
    for (std::int64_t j = 0; j < rows.n; ++j) {
      const Vector row = load_part(block + rows.place[j] * rows.width + c, left);
      sum = rows.weight == nullptr ? hn::Add(sum, row) : hn::MulAdd(hn::Set(d, rows.weight[j]), row, sum);
    }
    store_part(sum, left, to + c);
  }
}

void Combine(const PlacedRows& rows, const RowsOut& to) {
  rows.block.bf16 == nullptr ? CombineOf(rows, rows.block.f32, to.f32) : CombineOf(rows, rows.block.bf16, to.bf16);
}

float HalfDot(const c10::BFloat16* row, const c10::BFloat16* x, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum = hn::Zero(d);
  for (std::int64_t c = 0; c < n; c += lanes) {
    sum = hn::MulAdd(load_part(row + c, n - c), load_part(x + c, n - c), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(Combine);
HWY_EXPORT(HalfDot);

namespace {

// Number of rows whose outer products are summed before the sum is written back. A multiple of padded_depth()'s steps.
constexpr std::int64_t kOuterRows = 256;

template <class T>
constexpr bool kPaired = std::is_same_v<T, BFloat16>;

// Length of a left operand's rows.
template <class T>
std::int64_t row_length(std::int64_t k) {
  return kPaired<T> ? padded_depth(k) : k;
}

template <class T>
T* room(Buffer& buffer, std::int64_t n) {
  buffer.reserve((n * static_cast<std::int64_t>(sizeof(T)) + 3) / 4);
  return reinterpret_cast<T*>(buffer.data());
}

// Copies the routed rows, each padded with zeros to `width`.
template <class T>
void gather(const RoutedRows<T>& rows, std::int64_t k, const Assignments& assignments, std::int64_t width, T* block) {
  for (std::int64_t i = 0; i < assignments.count; ++i) {
    T* to = block + i * width;
    if (assignments.data[i] == kNoAssignment) {
      std::fill_n(to, width, T(0.0F));
    } else {
      std::copy_n(rows.row_of(assignments.data[i]), k, to);
      std::fill_n(to + k, width - k, T(0.0F));
    }
  }
}

const float* in_float(const float* x, std::int64_t /*k*/, GroupedWorkspace& /*work*/) {
  return x;
}
const float* in_float(const BFloat16* x, std::int64_t k, GroupedWorkspace& work) {
  float* to = room<float>(work.left, k);
  std::copy_n(x, k, to);
  return to;
}

// Float32 results are accumulated in place, bfloat16 results in a buffer that store_sums() rounds.
float* sums_for(float* to, std::int64_t /*n*/, GroupedWorkspace& /*work*/) {
  return to;
}
float* sums_for(const BFloat16* /*to*/, std::int64_t n, GroupedWorkspace& work) {
  return room<float>(work.sum, n);
}
void store_sums(const float* /*sums*/, std::int64_t /*n*/, const float* /*to*/) {}
void store_sums(const float* sums, std::int64_t n, BFloat16* to) {
  round_to_bfloat16(sums, n, to);
}

// Writes the rows of one side of an outer product, times their weights, to [count, n]; in bfloat16 as pairs of rows.
void sum_rows(const OuterSide<float>& side, const Assignments& assignments, const float* weight, float* to) {
  const std::int64_t n = side.width();
  gather({{side.rows.matrix.data + side.begin, side.rows.matrix.stride}, side.rows.assignments_per_row}, n, assignments,
         n, to);
  for (std::int64_t i = 0; weight != nullptr && i < assignments.count; ++i) {
    if (assignments.data[i] != kNoAssignment) {
      scaled_copy(to + i * n, weight[assignments.data[i]], n, to + i * n);
    }
  }
}
void sum_rows(const OuterSide<BFloat16>& side, const Assignments& assignments, const float* weight, BFloat16* to) {
  const std::int64_t n = side.width();
  const auto row = [&](std::int64_t i) -> ScaledRow {
    if (i >= assignments.count || assignments.data[i] == kNoAssignment) {
      return {nullptr};
    }
    const std::int64_t assignment = assignments.data[i];
    return {side.rows.row_of(assignment) + side.begin, weight == nullptr ? 1.0F : weight[assignment]};
  };
  for (std::int64_t i = 0; i < padded_depth(assignments.count); i += 2) {
    pack_row_pair(row(i), row(i + 1), n, to + i * n);
  }
}

// Transposes the result of sum_rows() to a left operand [n, count].
void transpose_side(const float* rows, std::int64_t count, std::int64_t n, float* to) {
  transpose({rows, n}, count, n, {to, count});
}
void transpose_side(const BFloat16* rows, std::int64_t count, std::int64_t n, BFloat16* to) {
  unpack_pairs_transposed(rows, count, n, to);
}

}  // namespace

template <class T>
void grouped_product(const RoutedRows<T>& rows, const Assignments& assignments, const RightOperand<T>& b, T* to,
                     GroupedWorkspace& work) {
  const std::int64_t k = row_length<T>(b.k);
  T* block = room<T>(work.left, assignments.count * k);
  gather(rows, b.k, assignments, k, block);
  float* sum = sums_for(to, assignments.count * b.n, work);
  tile_product({assignments.count, b.n, k, k, b.n, b.n}, block, b.data, sum);
  store_sums(sum, assignments.count * b.n, to);
}

template <class T>
void grouped_gemv(const RoutedRows<T>& rows, const Assignments& assignments, const RightOperand<T>& b, T* to,
                  GroupedWorkspace& work) {
  float* sums = sums_for(to, assignments.count * b.n, work);
  for (std::int64_t i = 0; i < assignments.count; ++i) {
    if (assignments.data[i] == kNoAssignment) {
      continue;
    }
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (has_bfloat16_gemv()) {
        gemv_bfloat16({rows.row_of(assignments.data[i]), 1, b.k, 0}, {b.data, b.n}, 0, b.n, {sums + i * b.n, b.n});
        continue;
      }
    }
    const float* x = in_float(rows.row_of(assignments.data[i]), b.k, work);
    gemv(x, b.k, {b.data, b.n}, b.n, sums + i * b.n);
  }
  store_sums(sums, assignments.count * b.n, to);
}

template <class T>
void grouped_outer_product(const OuterProduct<T>& product, const Assignments& assignments, Strided<float> to,
                           GroupedWorkspace& work) {
  const OuterSide<T>&left = product.left, &right = product.right;
  const std::int64_t m = left.width(), n = right.width();
  T* rows = room<T>(work.left, kOuterRows * m);
  T* columns = room<T>(work.columns, kOuterRows * m);
  T* others = room<T>(work.right, kOuterRows * n);
  const Strided<float> sum = product.transposed ? Strided<float>{room<float>(work.sum, m * n), n} : to;
  for (std::int64_t begin = 0; begin < assignments.count; begin += kOuterRows) {
    const Assignments some{assignments.data + begin, std::min(kOuterRows, assignments.count - begin)};
    sum_rows(left, some, product.weight, rows);
    transpose_side(rows, some.count, m, columns);
    sum_rows(right, some, nullptr, others);
    const std::int64_t count = row_length<T>(some.count);
    tile_product({m, n, count, count, n, sum.stride, begin > 0}, columns, others, sum.data);
  }
  if (product.transposed) {
    transpose({sum.data, sum.stride}, m, n, to);
  }
}

template void grouped_product(const RoutedRows<float>&, const Assignments&, const RightOperand<float>&, float*,
                              GroupedWorkspace&);
template void grouped_product(const RoutedRows<BFloat16>&, const Assignments&, const RightOperand<BFloat16>&, BFloat16*,
                              GroupedWorkspace&);
template void grouped_gemv(const RoutedRows<float>&, const Assignments&, const RightOperand<float>&, float*,
                           GroupedWorkspace&);
template void grouped_gemv(const RoutedRows<BFloat16>&, const Assignments&, const RightOperand<BFloat16>&, BFloat16*,
                           GroupedWorkspace&);
template void grouped_outer_product(const OuterProduct<float>&, const Assignments&, Strided<float>, GroupedWorkspace&);
template void grouped_outer_product(const OuterProduct<BFloat16>&, const Assignments&, Strided<float>,
                                    GroupedWorkspace&);

void combine_rows(const PlacedRows& rows, const RowsOut& to) {
  HWY_DYNAMIC_DISPATCH(Combine)(rows, to);
}

void dot_rows(const PlacedRows& rows, const Rows& x, float* dots) {
  for (std::int64_t j = 0; j < rows.n; ++j) {
    const Rows row = rows.block.ahead(rows.place[j] * rows.width);
    dots[j] =
        row.bf16 == nullptr ? dot(row, x, rows.width) : HWY_DYNAMIC_DISPATCH(HalfDot)(row.bf16, x.bf16, rows.width);
  }
}

}  // namespace headroom::kernels
#endif
