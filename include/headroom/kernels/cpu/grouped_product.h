// Products of rows that are scattered over a matrix: gathered into a block, multiplied, and nothing else kept.
//
// A choice c picks one row of a matrix: row c / choices_per_row. A list of choices may hold kNoChoice, a row of zeros.
#pragma once

#include <cstdint>

#include "headroom/kernels/cpu/buffer.h"
#include "headroom/kernels/cpu/transpose.h"

namespace headroom::kernels {

constexpr std::int64_t kNoChoice = -1;

struct ChosenRows {
  Strided<const float> matrix;
  std::int64_t choices_per_row;
  const float* row_of(std::int64_t choice) const { return matrix.data + choice / choices_per_row * matrix.stride; }
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

// to[i] = row(choice[i]) B for i < count: B [k, n] by rows, to [count, n] without gaps.
void grouped_product(const ChosenRows& rows, const Choices& choices, std::int64_t k, Strided<const float> b, float* to,
                     GroupedWorkspace& work);

// One side of a sum of outer products: columns [begin, end) of chosen rows.
struct OuterSide {
  ChosenRows rows;
  std::int64_t begin, end;
  std::int64_t width() const { return end - begin; }
};

// to[l][r] = sum_i weight(choice[i]) left_i[l] right_i[r], in the order of i. `weight` is indexed by choice; null:
// all 1. The narrower side had better be the left one. `transposed`: to[r][l] instead.
struct OuterProduct {
  OuterSide left, right;
  const float* weight;
  bool transposed;
};
void grouped_outer_product(const OuterProduct& product, const Choices& choices, Strided<float> to,
                           GroupedWorkspace& work);

// to = sum_j weight[j] block[place[j]], j < n, rows of `width` without gaps; `weight` null: all 1.
void combine_rows(const float* block, std::int64_t width, const std::int64_t* place, const float* weight,
                  std::int64_t n, float* to);

}  // namespace headroom::kernels
