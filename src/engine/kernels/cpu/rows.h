// Kernels on one row: its largest element, and dropout.
#pragma once

#include <cstdint>

#include "matmul/matrix.h"

namespace headroom::kernels {

struct RowMaximum {
  std::int64_t index = 0;  // of the first maximum; 0 unless all elements are finite
  bool finite = true;      // whether all elements are finite
};

// Returns the largest element of a row of logits; `n` must be at least 1.
RowMaximum row_maximum(const float* row, std::int64_t n);

// Dropout with a mask that is a hash of the seed and the element's index: no mask is stored, the backward pass
// recomputes it, and the number of threads does not matter.
struct DropoutRule {
  std::uint64_t seed;
  std::int32_t threshold;  // an element is dropped if its 31 random bits are below it
  float scale;             // factor for the elements that are kept
  bool relu;               // apply max(x, 0) first
};

// For elements [begin, end) of one row: y = x * scale (max(x, 0) * scale with relu), or 0 where dropped. All arguments
// have the same type.
void dropout(const DropoutRule& rule, const Rows& x, std::int64_t begin, std::int64_t end, const RowsOut& y);

// dx = dy * scale, or 0 where dropped and, with relu, where the forward result `y` is 0. `y` is not read without relu.
void dropout_backward(const DropoutRule& rule, const Rows& d_y, const Rows& y, std::int64_t begin, std::int64_t end,
                      const RowsOut& d_x);

}  // namespace headroom::kernels
