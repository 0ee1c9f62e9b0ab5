// y_i = sum over the visible j of (a_i . b_j) c_j, chunk by chunk: entries of a chunk are compared directly, those
// before it through the state sum_j b_j c_j^T. The whole of causal linear attention and of its gradients.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/attention/heads.h"

namespace headroom::kernels {

enum class Visible {
  all,
  earlier,  // j <= before + i, before = columns - rows: queries looking at keys
  later,    // i <= before + j, before = rows - columns: keys looking at the queries that see them
};

struct PrefixProduct {
  std::int64_t rows, columns;      // of a and y; of b and c
  std::int64_t d_factor, d_value;  // a and b have rows of d_factor, c and y of d_value
  Visible visible;
  bool half = false;  // operands of products are rounded to bfloat16, the state among them: for tensors of that
};

void prefix_product(const PrefixProduct& shape, const Rows& a, const Rows& b, const Rows& c, Strided<float> y);

}  // namespace headroom::kernels
