// Dense matrix multiplication inside the fused operators, by the fastest library for the kind of CPU.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "headroom/ops/linear.h"

namespace headroom::ops {

// Returns a b (+ bias) for a [m, k], b [k, n] and bias [n] of any strides. Not differentiable.
at::Tensor dense_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias = std::nullopt);

// The same, batch-invariant: each row has the bits that dense_matmul() gives it alone.
at::Tensor dense_matmul_batch_invariant(const at::Tensor& a, const at::Tensor& b,
                                        const std::optional<at::Tensor>& bias = std::nullopt);

// For several rows, all matrices are multiplied in one parallel region.
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

// Returns a b (+ bias) for a [m, k], b [k, n] and bias [n]. Each element is summed in the order of k, so its bits
// depend neither on the number of threads nor on other rows.
at::Tensor tile_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// Multiplication of few rows by a matrix on the CPU (GEMV), for decoding: each element of the matrix is read once for
// all rows. A row's sums do not depend on the number of rows or threads. Sums and bias are float32, and the result is
// rounded once.
//
// Returns whether gemv_rows() takes these operands: float32 or bfloat16 on the CPU, with the rows or columns of b
// contiguous.
bool suits_gemv(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// Returns a b + bias [m, n] for a [m, k], b [k, n] and bias [n].
at::Tensor gemv_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// gemv_rows() for several matrices in one parallel region. Needs at least two rows and matrices with contiguous rows.
std::vector<at::Tensor> gemv_rows_of_each(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices);

// Batch-invariant linear layers for the decode path: a row's result does not depend on the other rows of the call.

// Like linear() and expert_linear(), and batch-invariant on the CPU; on other devices these functions are called. Not
// differentiable.
at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w,
                                  const std::optional<at::Tensor>& b = std::nullopt,
                                  Implementation implementation = Implementation::automatic);
// Applies linear_batch_invariant() to the same rows once per matrix and bias.
std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation = Implementation::automatic);
at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& inputs,
                                         Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
