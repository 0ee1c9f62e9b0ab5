#include "tile_matmul.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/kernels/cpu/matmul/tile_product.h"

namespace headroom::ops {
namespace {

// A block of b, kDepth x kColumns, stays in the second-level cache while a thread multiplies its rows by it.
constexpr std::int64_t kRows = 64, kColumns = 256, kDepth = 256;
constexpr std::int64_t kLeastRows = 32;  // of a task

std::int64_t parts(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

// The length of a row of floats as an odd number of cache lines, so that a column's lines spread over all sets of a
// cache.
std::int64_t spread(std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  return (parts(columns, kLine) | 1) * kLine;
}

// A matrix that is contiguous along one axis, by rows or transposed.
class Operand {
 public:
  explicit Operand(const at::Tensor& t)
      : data_(t.const_data_ptr<float>()), stride_(std::max(t.stride(0), t.stride(1))), transposed_(t.stride(1) != 1) {}

  // Rows [i, i + rows) of columns [j, j + columns): in place, or copied into `block` if the matrix is transposed or,
  // where columns are read (`by_column`), if a column's lines would share a few sets of a cache.
  kernels::Strided<const float> rows(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns,
                                     bool by_column, kernels::Buffer& block) const {
    constexpr std::int64_t kSharing = 128;  // elements, of the row length's factors of two
    const std::int64_t to = spread(columns);
    if (transposed_) {
      block.reserve(rows * to);
      kernels::transpose({data_ + j * stride_ + i, stride_}, columns, rows, {block.data(), to});
      return {block.data(), to};
    }
    const float* first = data_ + i * stride_ + j;
    if (!by_column || stride_ % kSharing != 0) {
      return {first, stride_};
    }
    block.reserve(rows * to);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(first + r * stride_, columns, block.data() + r * to);
    }
    return {block.data(), to};
  }

 private:
  const float* data_;
  std::int64_t stride_;
  bool transposed_;
};

// A rectangle of the result.
struct Task {
  std::int64_t row, rows, column, columns;
};

// Two tasks or more for each thread, and equally many unless there are more than four. Tasks of the same columns copy
// the same blocks of b.
struct Grid {
  std::int64_t m, n, row_parts, column_parts, rows;

  Grid(std::int64_t m_rows, std::int64_t columns) : m(m_rows), n(columns), column_parts(parts(columns, kColumns)) {
    const std::int64_t threads = at::get_num_threads();
    const std::int64_t wanted = column_parts > 4 * threads ? 1 : threads * parts(2, column_parts);
    rows = std::max(kLeastRows, parts(parts(m, wanted), 16) * 16);
    row_parts = parts(m, rows);
  }
  std::int64_t tasks() const { return row_parts * column_parts; }
  Task operator[](std::int64_t i) const {
    const std::int64_t row = i / column_parts * rows, column = i % column_parts * kColumns;
    return {row, std::min(rows, m - row), column, std::min(kColumns, n - column)};
  }
};

struct Blocks {
  kernels::Buffer left, right;
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
  const std::int64_t k = a.size(1), n = b.size(1);
  const Operand left(a), right(b);
  const Grid grid(a.size(0), n);
  const at::Tensor result = at::empty({a.size(0), n}, a.options());
  float* c = result.mutable_data_ptr<float>();
  const at::Tensor row = bias ? bias->contiguous() : at::Tensor();
  const float* first = bias ? row.const_data_ptr<float>() : nullptr;
  at::parallel_for(0, grid.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    Blocks blocks;
    for (std::int64_t i = begin; i < end; ++i) {
      const Task task = grid[i];
      for (std::int64_t r = task.row; first != nullptr && r < task.row + task.rows; ++r) {
        std::copy_n(first + task.column, task.columns, c + r * n + task.column);
      }
      for (std::int64_t at = 0; at < k; at += kDepth) {
        const std::int64_t depth = std::min(kDepth, k - at);
        const kernels::Strided<const float> y = right.rows(at, depth, task.column, task.columns, true, blocks.right);
        for (std::int64_t r = task.row; r < task.row + task.rows; r += kRows) {
          const std::int64_t rows = std::min(kRows, task.row + task.rows - r);
          const kernels::Strided<const float> x = left.rows(r, rows, at, depth, false, blocks.left);
          kernels::tile_product({rows, task.columns, depth, x.stride, y.stride, n, at > 0 || first != nullptr}, x.data,
                                y.data, c + r * n + task.column);
        }
      }
    }
    kernels::tile_product_done();
  });
  return result;
}

}  // namespace headroom::ops
