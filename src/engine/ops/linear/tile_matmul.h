// Dense float32 matrix multiplication on the CPU by the kernels' tiles, which read transposed operands block by block.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace headroom::ops {

// Whether tile_matmul() takes the operands: float32 on the CPU, each contiguous along one axis, with enough rows to be
// worth copying blocks of b.
bool suits_tiles(const at::Tensor& a, const at::Tensor& b);

// a [m, k] times b [k, n] (+ bias [n]). An element's sum is in the order of k, so that its bits depend neither on the
// number of threads nor on other rows.
at::Tensor tile_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

}  // namespace headroom::ops
