// Products of rows that are scattered over a matrix: gathered into a block, multiplied, and nothing else kept.
//
// A choice c picks one row of a matrix: row c / choices_per_row. A list of choices may hold kNoChoice, a row of zeros.
// T: float or BFloat16, of the operands; sums are float32.
#pragma once

#include <cstdint>

#include "bfloat16.h"
#include "buffer.h"
#include "transpose.h"

namespace headroom::kernels {

constexpr std::int64_t kNoChoice = -1;

template <class T>
struct ChosenRows {
  Strided<const T> matrix;
  std::int64_t choices_per_row;
  const T* row_of(std::int64_t choice) const { return matrix.data + choice / choices_per_row * matrix.stride; }
};

// One thread's buffers, kept from call to call.
struct GroupedWorkspace {
  Buffer left, right, columns, sum;
};

// Part of a list of choices.
struct Choices {
  const std::int64_t* choice;
  std::int64_t count;
};

// A matrix [k, n] as a product's right operand: by rows, or in pairs of rows (bfloat16.h) where it is of BFloat16.
template <class T>
struct RightOperand {
  const T* data;
  std::int64_t k, n;
};

// to[i] = row(choice[i]) B for i < count, rounded to T once, to [count, n] without gaps.
template <class T>
void grouped_product(const ChosenRows<T>& rows, const Choices& choices, const RightOperand<T>& b, T* to,
                     GroupedWorkspace& work);

// The same, a row at a time from a matrix by rows: for few rows, where the matrix is most of what is read.
template <class T>
void few_products(const ChosenRows<T>& rows, const Choices& choices, const RightOperand<T>& b, T* to,
                  GroupedWorkspace& work);

// One side of a sum of outer products: columns [begin, end) of chosen rows.
template <class T>
struct OuterSide {
  ChosenRows<T> rows;
  std::int64_t begin, end;
  std::int64_t width() const { return end - begin; }
};

// to[l][r] = sum_i weight(choice[i]) left_i[l] right_i[r], in the order of i. `weight` is indexed by choice; null:
// all 1. Rows times weight are rounded to T. The narrower side had better be the left one. `transposed`: to[r][l]
// instead.
template <class T>
struct OuterProduct {
  OuterSide<T> left, right;
  const float* weight;
  bool transposed;
};
template <class T>
void grouped_outer_product(const OuterProduct<T>& product, const Choices& choices, Strided<float> to,
                           GroupedWorkspace& work);

// Rows of a block, of `width` numbers without gaps: those at place[j], j < n, each times weight[j] (null: all 1).
template <class T>
struct PlacedRows {
  const T* block;
  std::int64_t width;
  const std::int64_t* place;
  const float* weight;
  std::int64_t n;
};

// to = their sum, rounded to T once.
template <class T>
void combine_rows(const PlacedRows<T>& rows, T* to);

// dots[j] = row at place[j] times x, without the weights.
template <class T>
void dot_rows(const PlacedRows<T>& rows, const T* x, float* dots);

}  // namespace headroom::kernels
