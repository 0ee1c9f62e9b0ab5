// Dense matrix multiplication inside the fused operators, by the library that suits the kind of CPU.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"

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

// Products of few rows and a matrix on the CPU, the matmuls of decoding: each element of the matrix is read once, by
// all rows. A row's sums do not depend on the number of rows or threads. Sums and bias are float32, and the result is
// rounded once.
//
// Whether gemv_rows() takes these operands: float32 or bfloat16 on the CPU, with the rows or columns of b contiguous.
bool suits_gemv(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// a [m, k], b [k, n], bias [n]: a b + bias, [m, n].
at::Tensor gemv_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// gemv_rows() of several matrices in one parallel region. Needs at least two rows and matrices with contiguous rows.
std::vector<at::Tensor> gemv_rows_of_each(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices);

// Batch-invariant linear layers, for the decode path: a row's result does not depend on the other rows of the call.

// As linear() and expert_linear(): on the CPU a row's result has the same bits whatever the other rows are; on other
// devices they call those. Not differentiable.
at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w,
                                  const std::optional<at::Tensor>& b = std::nullopt,
                                  Implementation implementation = Implementation::automatic);
// linear_batch_invariant() of the same rows with each matrix and bias.
std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation = Implementation::automatic);
at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& inputs,
                                         Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
