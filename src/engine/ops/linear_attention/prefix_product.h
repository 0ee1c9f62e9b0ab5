// Linear attention's sums without its matrix, as a differentiable operator.
#pragma once

#include <ATen/ATen.h>

namespace headroom::ops {

// y [B, H, T, m], y_i = sum over visible j of (a_i . b_j) c_j, for a [B, H, T, n], b [B, H or G, S, n], c [B, H or G,
// S, m] on the CPU; y in float32. Where c is bfloat16, so are the operands of products, with float32 sums, if the CPU
// multiplies that faster. `causal`: j <= S - T + i, else all j. Differentiable.
at::Tensor prefix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool causal);

}  // namespace headroom::ops
