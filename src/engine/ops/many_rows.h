// Batch-invariant results: a mode for texts that are divided into batches and pieces. The decode path uses
// linear/dense_matmul.h instead.
//
// The ordinary operators choose kernels, and so the order of summation, by the number of rows. The kernels for many
// rows are batch-invariant. The kernels for few rows, which the decode path needs for speed, sum in another order.
#pragma once

#include <ATen/ATen.h>

#include <functional>

namespace headroom::ops {

// While an active object exists, operators called by this thread use the kernels for many rows, even for few rows.
class ManyRows {
 public:
  explicit ManyRows(bool active = true);
  ~ManyRows();
  ManyRows(const ManyRows&) = delete;
  ManyRows& operator=(const ManyRows&) = delete;

  static bool active();

 private:
  bool before_;
};

// Returns multiply(rows) for rows [N, i] on the CPU. While ManyRows is active, few rows are padded with rows of zeros,
// because matmul libraries have separate kernels for few rows.
template <class Multiply>
at::Tensor with_many_rows(const at::Tensor& rows, const Multiply& multiply) {
  constexpr std::int64_t kLeast = 16;
  const std::int64_t n = ManyRows::active() && rows.is_cpu() ? rows.size(0) : 0;
  if (n == 0 || n >= kLeast) {
    return multiply(rows);
  }
  return multiply(at::constant_pad_nd(rows, {0, 0, 0, kLeast - n})).narrow(0, 0, n);
}

// Applies an elementwise function. While ManyRows is active, an element's result on the CPU has the same bits wherever
// the element lies: f gets whole SIMD vectors only, because torch's loops round the last elements of a tensor
// differently.
at::Tensor elementwise(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f);
// Returns elementwise() of the logistic function.
at::Tensor sigmoid(const at::Tensor& x);

// Applies an elementwise function to x [N, ...], batch-invariantly: f gets several rows if they are whole SIMD vectors,
// otherwise one row. With `takes_gaps`, f gets several rows of any length with gaps between them: torch's vectorised
// loops process such rows one by one. (Exact GELU is computed by oneDNN instead.)
at::Tensor elementwise_by_rows(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f,
                               bool takes_gaps = false);

}  // namespace headroom::ops
