// The largest element of a row of logits.
#pragma once

#include <cstdint>

namespace headroom::kernels {

struct RowMaximum {
  std::int64_t index = 0;  // of the first maximum; 0 unless all elements are finite
  bool finite = true;      // whether all elements are finite
};

// `n` must be at least 1.
RowMaximum row_maximum(const float* row, std::int64_t n);

}  // namespace headroom::kernels
