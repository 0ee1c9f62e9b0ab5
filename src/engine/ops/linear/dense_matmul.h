// Dense matrix multiplication inside the fused operators: oneDNN where possible, else torch's default. MKL, torch's
// default in float32, reaches half of oneDNN's rate on CPUs of other vendors.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace headroom::ops {

// a [m, k] times b [k, n] (+ bias [n]), of any strides. Not differentiable.
at::Tensor dense_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias = std::nullopt);

// The same, batch-invariant: each row has the bits that dense_matmul() gives it alone.
at::Tensor dense_matmul_batch_invariant(const at::Tensor& a, const at::Tensor& b,
                                        const std::optional<at::Tensor>& bias = std::nullopt);

// x^T y [k, m] of x [n, k] and y [n, m], contiguous: the gradient of a weight matrix.
at::Tensor dense_matmul_transposed(const at::Tensor& x, const at::Tensor& y);

}  // namespace headroom::ops
