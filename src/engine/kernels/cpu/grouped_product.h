// Grouped matrix multiplication (mixture of experts): the rows routed to one expert are gathered into a block,
// multiplied by the expert's matrix, and the block is discarded.
//
// An assignment a routes one row of a matrix to an expert: row a / assignments_per_row. In a list of assignments,
// kNoAssignment stands for a row of zeros. T: float or BFloat16, the operands' type; accumulation is in float32.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/matmul/bfloat16.h"

namespace headroom::kernels {

constexpr std::int64_t kNoAssignment = -1;

template <class T>
struct RoutedRows {
  Strided<const T> matrix;
  std::int64_t assignments_per_row;
  const T* row_of(std::int64_t assignment) const {
    return matrix.data + assignment / assignments_per_row * matrix.stride;
  }
};

// Buffers of one thread, reused between calls.
struct GroupedWorkspace {
  Buffer left, right, columns, sum;
};

// Part of a list of assignments.
struct Assignments {
  const std::int64_t* data;
  std::int64_t count;
};

// A matrix [k, n] as a right operand: row-major for float, packed in pairs of rows for BFloat16 (bfloat16.h).
template <class T>
struct RightOperand {
  const T* data;
  std::int64_t k, n;
};

// to[i] = row(assignments[i]) B for i < count, rounded to T once; `to` is [count, n] without gaps.
template <class T>
void grouped_product(const RoutedRows<T>& rows, const Assignments& assignments, const RightOperand<T>& b, T* to,
                     GroupedWorkspace& work);

// The same row by row with a row-major B, for the decode path, whose time is dominated by reading B.
template <class T>
void grouped_gemv(const RoutedRows<T>& rows, const Assignments& assignments, const RightOperand<T>& b, T* to,
                  GroupedWorkspace& work);

// One side of a sum of outer products: columns [begin, end) of routed rows.
template <class T>
struct OuterSide {
  RoutedRows<T> rows;
  std::int64_t begin, end;
  std::int64_t width() const { return end - begin; }
};

// to[l][r] = sum_i weight[a_i] left_i[l] right_i[r], summed in the order of i, a_i the i-th assignment. `weight` null:
// all 1. Weighted rows are rounded to T. Faster with the narrower side on the left. `transposed`: to[r][l].
template <class T>
struct OuterProduct {
  OuterSide<T> left, right;
  const float* weight;
  bool transposed;
};
template <class T>
void grouped_outer_product(const OuterProduct<T>& product, const Assignments& assignments, Strided<float> to,
                           GroupedWorkspace& work);

// Rows place[j], j < n, of a contiguous block with rows of `width` elements, each times weight[j] (null: all 1).
struct PlacedRows {
  Rows block;
  std::int64_t width;
  const std::int64_t* place;
  const float* weight;
  std::int64_t n;
};

// Writes the weighted sum of the rows to `to`, which has the block's type; rounds once.
void combine_rows(const PlacedRows& rows, const RowsOut& to);

// dots[j] = (row place[j]) . x, without the weights. x has the block's type.
void dot_rows(const PlacedRows& rows, const Rows& x, float* dots);

}  // namespace headroom::kernels
