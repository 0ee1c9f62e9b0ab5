#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dense_matmul.h"

// Products of few rows and a matrix on the CPU, the matmuls of decoding: each element of the matrix is read once, by
// all rows. A row's sums do not depend on the number of rows or threads. Sums and bias are float32, and the result is
// rounded once.
namespace headroom::ops {

// Whether gemv_rows() takes these operands: float32 or bfloat16 on the CPU, with the rows or columns of b contiguous.
bool suits_gemv(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// a [m, k], b [k, n], bias [n]: a b + bias, [m, n].
at::Tensor gemv_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// gemv_rows() of several matrices in one parallel region. Needs at least two rows and matrices with contiguous rows.
std::vector<at::Tensor> gemv_rows_of_each(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices);

}  // namespace headroom::ops
