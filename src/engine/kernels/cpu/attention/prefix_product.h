// y_i = sum over the visible j of (a_i . b_j) c_j: causal linear attention without normalisation, and its gradients.
// Computed chunk by chunk: pairs within a chunk directly, earlier chunks through the state sum_j b_j c_j^T.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/matmul/operands.h"

namespace headroom::kernels {

enum class Visible {
  all,
  earlier,  // j <= before + i, before = columns - rows: the keys that a query attends to
  later,    // i <= before + j, before = rows - columns: the queries that attend to a key
};

struct PrefixProductShape {
  std::int64_t rows, columns;      // of a and y; of b and c
  std::int64_t d_factor, d_value;  // width of a and b; of c and y
  Visible visible;
  bool bf16 = false;  // multiply in bfloat16, the state too; only for bfloat16 tensors
};

void prefix_product(const PrefixProductShape& shape, const Rows& a, const Rows& b, const Rows& c, Strided<float> y);

}  // namespace headroom::kernels
