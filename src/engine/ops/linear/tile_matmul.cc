#include "dense_matmul.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/ceil_div.h"

namespace headroom::ops {
namespace {

// A block of b, kDepth x kColumns, stays in L2 while a thread multiplies its rows by it.
constexpr std::int64_t kRows = 64, kColumns = 256, kDepth = 256;
constexpr std::int64_t kLeastRows = 32;  // per task

// Returns a row length of an odd number of cache lines, so that a column's lines spread over all sets of a cache.
std::int64_t spread(std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  return (ceil_div(columns, kLine) | 1) * kLine;
}

// A matrix that is contiguous along either axis.
class Operand {
 public:
  explicit Operand(const at::Tensor& t)
      : data_(t.const_data_ptr<float>()), stride_(std::max(t.stride(0), t.stride(1))), transposed_(t.stride(1) != 1) {}

  // Returns rows [i, i + rows) and columns [j, j + columns): in place, or copied into `block` if the matrix is
  // transposed.
  kernels::Strided<const float> part(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns,
                                     kernels::Buffer& block) const {
    if (!transposed_) {
      return {data_ + i * stride_ + j, stride_};
    }
    const std::int64_t to = spread(columns);
    block.reserve(rows * to);
    kernels::transpose({data_ + j * stride_ + i, stride_}, columns, rows, {block.data(), to});
    return {block.data(), to};
  }

  // The same for access by columns: also copied if the lines of a column would share a few sets of a cache.
  kernels::Strided<const float> part_by_columns(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns,
                                                kernels::Buffer& block) const {
    constexpr std::int64_t kSharing = 128;  // floats; rows of a multiple of this length share sets
    const kernels::Strided<const float> from = part(i, rows, j, columns, block);
    if (transposed_ || stride_ % kSharing != 0) {
      return from;
    }
    const std::int64_t to = spread(columns);
    block.reserve(rows * to);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(from.data + r * from.stride, columns, block.data() + r * to);
    }
    return {block.data(), to};
  }

 private:
  const float* data_;
  std::int64_t stride_;
  bool transposed_;
};

// A rectangle of the result.
struct TileTask {
  std::int64_t row, rows, column, columns;
};

// At least two tasks per thread if there are enough rows, but no more row parts than necessary, because tasks of the
// same columns copy the same blocks of b.
struct Grid {
  std::int64_t m, n, row_parts, column_parts, rows;

  Grid(std::int64_t m_rows, std::int64_t columns) : m(m_rows), n(columns), column_parts(ceil_div(columns, kColumns)) {
    const std::int64_t threads = at::get_num_threads();
    const std::int64_t wanted = column_parts > 4 * threads ? 1 : threads * ceil_div(std::int64_t{2}, column_parts);
    rows = std::max(kLeastRows, round_up(ceil_div(m, wanted), 16));
    row_parts = ceil_div(m, rows);
  }
  std::int64_t tasks() const { return row_parts * column_parts; }
  TileTask operator[](std::int64_t i) const {
    const std::int64_t row = i / column_parts * rows, column = i % column_parts * kColumns;
    return {row, std::min(rows, m - row), column, std::min(kColumns, n - column)};
  }
};

// A thread's copies of blocks, reused between tasks.
struct Blocks {
  kernels::Buffer left, right;
};

// c = a b + bias, with a [m, k]; `bias` may be null.
struct Product {
  Operand a, b;
  std::int64_t k;
  const float* bias;
  kernels::Strided<float> c;

  void compute(const TileTask& task, Blocks& blocks) const {
    float* corner = c.data + task.row * c.stride + task.column;
    for (std::int64_t r = 0; bias != nullptr && r < task.rows; ++r) {
      std::copy_n(bias + task.column, task.columns, corner + r * c.stride);
    }
    for (std::int64_t at = 0; at < k; at += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - at);
      const kernels::Strided<const float> y = b.part_by_columns(at, depth, task.column, task.columns, blocks.right);
      for (std::int64_t r = 0; r < task.rows; r += kRows) {
        const std::int64_t rows = std::min(kRows, task.rows - r);
        const kernels::Strided<const float> x = a.part(task.row + r, rows, at, depth, blocks.left);
        kernels::tile_product({rows, task.columns, depth, x.stride, y.stride, c.stride, at > 0 || bias != nullptr},
                              x.data, y.data, corner + r * c.stride);
      }
    }
  }
};

}  // namespace

bool suits_tiles(const at::Tensor& a, const at::Tensor& b) {
  const auto dense = [](const at::Tensor& t) {
    return t.is_cpu() && t.scalar_type() == at::kFloat && t.numel() > 0 && (t.stride(0) == 1 || t.stride(1) == 1) &&
           t.stride(0) > 0 && t.stride(1) > 0;
  };
  return dense(a) && dense(b) && a.size(0) >= kLeastRows;
}

at::Tensor tile_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const Grid grid(a.size(0), b.size(1));
  const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  const at::Tensor row = bias ? bias->contiguous() : at::Tensor();
  const Product product{.a = Operand(a),
                        .b = Operand(b),
                        .k = a.size(1),
                        .bias = bias ? row.const_data_ptr<float>() : nullptr,
                        .c = {result.mutable_data_ptr<float>(), b.size(1)}};
  at::parallel_for(0, grid.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    Blocks blocks;
    for (std::int64_t i = begin; i < end; ++i) {
      product.compute(grid[i], blocks);
    }
    kernels::tile_product_done();
  });
  return result;
}

}  // namespace headroom::ops
