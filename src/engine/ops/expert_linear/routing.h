// Which choice stands where once choices are sorted by their matrix.
//
// A choice is a = (n, h, k), counted (n * H + h) * K + k. Choices of one input or output row follow each other: row a /
// (choices per row).
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {

struct Routing {
  std::vector<std::int64_t> begin;   // [X+1] where each matrix's choices start, multiples of the step
  std::vector<std::int64_t> choice;  // [begin[X]] its choice; kernels::kNoChoice fills up to the step
  std::vector<std::int64_t> place;   // [A] where each choice stands
  std::int64_t per_input_row, per_output_row;
  at::Tensor weight;  // [A] float32, undefined: all 1

  std::int64_t rows() const { return begin.back(); }
  std::int64_t rows_of(std::int64_t matrix) const { return begin[matrix + 1] - begin[matrix]; }
  const float* weights() const { return weight.defined() ? weight.const_data_ptr<float>() : nullptr; }
};

// Choices of one matrix keep their order. Each matrix gets a multiple of `step` rows. Throws Error on an index outside
// the bank.
Routing route(const ExpertLinearInputs& in, std::int64_t step);

}  // namespace headroom::ops
