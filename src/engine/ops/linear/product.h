// The dense product inside the fused operators: oneDNN's where it suits, else torch's own. Of the two libraries in
// torch MKL halves its rate on the CPUs of other vendors.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace headroom::ops {

// a [m, k] times b [k, n] (+ bias [n]), any strides. Not differentiable.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias = std::nullopt);

// The same, each row as it is alone, bit for bit: one row gives what product() gives.
at::Tensor product_by_row(const at::Tensor& a, const at::Tensor& b,
                          const std::optional<at::Tensor>& bias = std::nullopt);

// x [n, k] and y [n, m]: x^T y [k, m], contiguous: a matrix's gradient.
at::Tensor product_of_columns(const at::Tensor& x, const at::Tensor& y);

}  // namespace headroom::ops
