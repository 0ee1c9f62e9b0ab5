// Squared lengths of rows and their products with a few directions, in one pass: what a mixture of Gaussian keys needs
// beside the products of queries and keys.
#pragma once

#include <ATen/ATen.h>

namespace headroom::ops {

// t [B, X, n, e] and directions [X, R, e], R may be 0; [B, X, 1 + R, n] float32: |t_i|^2, then t_i . direction_r.
// Differentiable in both; CPU tensors only.
at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions);

}  // namespace headroom::ops
