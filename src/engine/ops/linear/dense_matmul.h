// Dense matrix multiplication inside the fused operators, by the library that suits the kind of CPU.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

namespace headroom::ops {

// a [m, k] times b [k, n] (+ bias [n]), of any strides. Not differentiable.
at::Tensor dense_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias = std::nullopt);

// The same, batch-invariant: each row has the bits that dense_matmul() gives it alone.
at::Tensor dense_matmul_batch_invariant(const at::Tensor& a, const at::Tensor& b,
                                        const std::optional<at::Tensor>& bias = std::nullopt);

// The product of a with each of several matrices, as dense_matmul_batch_invariant() gives it. Several rows are
// multiplied by all matrices in one parallel region.
struct MatrixAndBias {
  at::Tensor matrix;  // [k, n]
  std::optional<at::Tensor> bias;
};
std::vector<at::Tensor> dense_matmuls_batch_invariant(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices);

// x^T y [k, m] of x [n, k] and y [n, m]: the gradient of a weight matrix.
at::Tensor dense_matmul_transposed(const at::Tensor& x, const at::Tensor& y);

// Dense float32 matrix multiplication on the CPU by the kernels' tiles, which read transposed operands block by block.
// suits_tiles() returns whether tile_matmul() takes the operands: float32 on the CPU, each contiguous along one axis,
// with enough rows to be worth copying blocks of b.
bool suits_tiles(const at::Tensor& a, const at::Tensor& b);

// a [m, k] times b [k, n] (+ bias [n]). An element's sum is in the order of k, so that its bits depend neither on the
// number of threads nor on other rows.
at::Tensor tile_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

}  // namespace headroom::ops
