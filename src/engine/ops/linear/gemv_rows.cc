#include "dense_matmul.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <deque>
#include <type_traits>

#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/kernels/cpu/matmul/operands.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/shapes.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"

namespace headroom::ops {
namespace {

// Returns in how many parts a matrix is read in parallel. Depends on its size only, so that the order of summation does
// not depend on the number of threads.
std::int64_t parts_for(std::int64_t elements) {
  constexpr std::int64_t kElements = 1 << 15, kMost = 8;
  std::int64_t parts = 1;
  while (parts < kMost && elements / (2 * parts) >= kElements) {
    parts *= 2;
  }
  return parts;
}

using kernels::Bfloat16GemvInput;
using kernels::GemvInput;

// Computes columns [begin, end), with the kernel for the vectors' dtype.
void multiply_part(const GemvInput& x, const kernels::Rows& w, std::int64_t begin, std::int64_t end,
                   kernels::Strided<float> y) {
  kernels::gemv(x, w, begin, end, y);
}
void multiply_part(const Bfloat16GemvInput& x, const kernels::Rows& w, std::int64_t begin, std::int64_t end,
                   kernels::Strided<float> y) {
  kernels::gemv_bfloat16(x, {w.bf16, w.stride}, begin, end, y);
}
void multiply_part_transposed(const GemvInput& x, const kernels::Rows& w, std::int64_t begin, std::int64_t end,
                              kernels::Strided<float> y) {
  kernels::gemv_transposed(x, w, begin, end, y);
}
void multiply_part_transposed(const Bfloat16GemvInput& x, const kernels::Rows& w, std::int64_t begin, std::int64_t end,
                              kernels::Strided<float> y) {
  kernels::gemv_bfloat16_transposed(x, {w.bf16, w.stride}, begin, end, y);
}

// Copies several vectors to the layout that the kernel reads for each block of columns.
void interleave(GemvInput& x, kernels::Buffer& storage) {
  storage.reserve(x.n * x.count);
  kernels::interleave_rows(x, storage.data());
  x.columns = storage.data();
}
void interleave(Bfloat16GemvInput& x, kernels::Buffer& storage) {
  storage.reserve(kernels::even(x.n) / 2 * x.count);
  auto* pairs = reinterpret_cast<std::uint32_t*>(storage.data());
  kernels::interleave_pairs(x, pairs);
  x.pairs = pairs;
}

// Divides a matrix's rows into parts with separate sums, which are added in order after the bias. bfloat16 is
// multiplied in pairs of rows, so its parts begin at even rows.
template <class Input>
struct Parts {
  std::int64_t n, count, rows;
  Parts(std::int64_t n_rows, std::int64_t columns)
      : n(n_rows), count(parts_for(n_rows * columns)), rows(ceil_div(n_rows, count)) {
    rows = std::is_same_v<Input, Bfloat16GemvInput> ? kernels::even(rows) : rows;
  }
  std::int64_t begin(std::int64_t part) const { return std::min(n, part * rows); }
  std::int64_t size(std::int64_t part) const { return std::min(rows, n - begin(part)); }
  void add(std::int64_t part, const Input& x, const kernels::Rows& w, std::int64_t columns,
           kernels::Strided<float> sums) const {
    multiply_part(x.part(begin(part), size(part)), w.from(begin(part)), 0, columns, sums);
  }
};

void add(const float* sum, std::int64_t columns, float* y) {
  for (std::int64_t j = 0; j < columns; ++j) {
    y[j] += sum[j];
  }
}

// Number of columns that are computed before rounding, few enough to stay in the CPU cache.
constexpr std::int64_t kBlockColumns = 1024;

void begin_with(const float* bias, std::int64_t columns, float* y) {
  bias != nullptr ? std::copy_n(bias, columns, y) : std::fill_n(y, columns, 0.0F);
}

// Calls compute(j, width, y) for blocks of columns of `count` rows; y holds the block's float32 rows, which are rounded
// if the result is bfloat16.
template <class Compute>
void for_blocks(std::int64_t begin, std::int64_t end, std::int64_t wide, std::int64_t count, const kernels::RowsOut& to,
                const Compute& compute) {
  kernels::Buffer staging;
  for (std::int64_t j = begin; j < end; j += wide) {
    const std::int64_t width = std::min(wide, end - j);
    const kernels::RowsOut block = to.ahead(j);
    const kernels::Strided<float> y = kernels::staged_rows(block, count, width, staging);
    compute(j, width, y);
    kernels::store_rows(y, count, width, block);
  }
}

// Multiplies one row; each part of the matrix is read by one thread.
template <class Input>
void multiply_row(const Input& x, const kernels::Rows& w, std::int64_t columns, const float* bias,
                  const kernels::RowsOut& to) {
  const Parts<Input> parts(x.n, columns);
  kernels::Buffer sums(parts.count * columns);
  at::parallel_for(0, parts.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      parts.add(part, x, w, columns, {sums.data() + part * columns, columns});
    }
  });
  for_blocks(0, columns, kBlockColumns, 1, to, [&](std::int64_t j, std::int64_t width, kernels::Strided<float> y) {
    begin_with(bias != nullptr ? bias + j : nullptr, width, y.data);
    for (std::int64_t part = 0; part < parts.count; ++part) {
      add(sums.data() + part * columns + j, width, y.data);
    }
  });
}

// Multiplies several rows by a matrix, with sums in the same order, in blocks of columns that stay in the CPU cache
// from row to row. The blocks do not affect a column's sum.
template <class Input>
class RowsProduct {
 public:
  RowsProduct(const Input& x, const kernels::Rows& w, std::int64_t columns, const float* bias,
              const kernels::RowsOut& to)
      : x_(x), w_(w), columns_(columns), bias_(bias), to_(to), parts_(x.n, columns) {
    // Two column blocks per thread, or as many as fit in L2.
    constexpr std::int64_t kLeast = 64, kNear = 1 << 16;
    const std::int64_t most = std::max(kLeast, kNear / x.count / kLeast * kLeast);
    const std::int64_t threads = at::get_num_threads(), shares = threads > 1 ? 2 * threads : 1;
    wide_ = std::clamp(round_up(columns / shares, kLeast), kLeast, most);
  }

  std::int64_t blocks() const { return ceil_div(columns_, wide_); }

  // Computes blocks [begin, end).
  void run(std::int64_t begin, std::int64_t end) const {
    kernels::Buffer sums(x_.count * wide_);
    const auto compute = [&](std::int64_t j, std::int64_t width, kernels::Strided<float> y) {
      for (std::int64_t part = 0; part < parts_.count; ++part) {
        parts_.add(part, x_, w_.ahead(j), width, {sums.data(), wide_});
        for (std::int64_t r = 0; r < x_.count; ++r) {
          float* row = y.data + r * y.stride;
          if (part == 0) {
            begin_with(bias_ != nullptr ? bias_ + j : nullptr, width, row);
          }
          add(sums.data() + r * wide_, width, row);
        }
      }
    };
    for_blocks(begin * wide_, std::min(columns_, end * wide_), wide_, x_.count, to_, compute);
  }

 private:
  Input x_;
  kernels::Rows w_;
  std::int64_t columns_;
  const float* bias_;
  kernels::RowsOut to_;
  Parts<Input> parts_;
  std::int64_t wide_ = 0;
};

// Runs all blocks of all multiplications in one parallel region.
template <class Input>
void run_products(const std::vector<RowsProduct<Input>>& products) {
  std::int64_t all = 0;
  for (const RowsProduct<Input>& product : products) {
    all += product.blocks();
  }
  at::parallel_for(0, all, 1, [&](std::int64_t begin, std::int64_t end) {
    for (const RowsProduct<Input>& product : products) {
      const std::int64_t blocks = product.blocks();
      if (begin < blocks && end > 0) {
        product.run(std::max<std::int64_t>(0, begin), std::min(blocks, end));
      }
      begin -= blocks;
      end -= blocks;
    }
  });
}

template <class Input>
void multiply_columns(Input x, const kernels::Rows& w, std::int64_t columns, const float* bias,
                      const kernels::RowsOut& to) {
  const std::int64_t parts = parts_for(x.n * columns);
  const auto compute = [&](std::int64_t j, std::int64_t width, kernels::Strided<float> y) {
    multiply_part_transposed(x, w.from(j), 0, width, y);
    for (std::int64_t r = 0; bias != nullptr && r < x.count; ++r) {
      add(bias + j, width, y.data + r * y.stride);
    }
  };
  at::parallel_for(0, columns, ceil_div(columns, parts), [&](std::int64_t begin, std::int64_t end) {
    for_blocks(begin, end, kBlockColumns, x.count, to, compute);
  });
}

// A bias as float32. Owns its memory.
struct WideBias {
  at::Tensor dense;
  kernels::Buffer wide;
  const float* data = nullptr;

  explicit WideBias(const std::optional<at::Tensor>& bias) {
    if (bias) {
      dense = bias->contiguous();
      data = kernels::as_float32(matrix_rows(dense), 1, bias->numel(), wide).data;
    }
  }
};

// Calls run(input) with the rows in the layout that their kernel reads.
template <class Run>
void with_input(const at::Tensor& rows, const Run& run) {
  const bool pairs = rows.scalar_type() == at::kBFloat16 && kernels::has_bfloat16_gemv();
  const at::Tensor x = (pairs ? rows : in_type(rows, at::kFloat)).contiguous();
  if (pairs) {
    run(Bfloat16GemvInput{x.const_data_ptr<at::BFloat16>(), x.size(0), x.size(1), x.size(1)});
  } else {
    run(GemvInput{x.const_data_ptr<float>(), x.size(0), x.size(1), x.size(1)});
  }
}

}  // namespace

bool suits_gemv(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const at::ScalarType type = a.scalar_type();
  return (!bias || bias->scalar_type() == type) && a.is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         b.scalar_type() == type && (b.stride(1) == 1 || b.stride(0) == 1);
}

at::Tensor gemv_rows(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  at::Tensor y = at::empty({a.size(0), b.size(1)}, a.options());
  const WideBias first(bias);
  const std::int64_t columns = b.size(1);
  with_input(a, [&](auto x) {
    if (b.stride(1) != 1) {
      multiply_columns(x, matrix_rows(b.t()), columns, first.data, matrix_rows_out(y));
    } else if (x.count == 1) {
      multiply_row(x, matrix_rows(b), columns, first.data, matrix_rows_out(y));
    } else {
      kernels::Buffer interleaved;
      interleave(x, interleaved);
      run_products(std::vector{RowsProduct(x, matrix_rows(b), columns, first.data, matrix_rows_out(y))});
    }
  });
  return y;
}

std::vector<at::Tensor> gemv_rows_of_each(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices) {
  const std::vector<at::Tensor> results = transformed(matrices, [&](const auto& m) {
    return at::empty({a.size(0), m.matrix.size(1)}, a.options());
  });
  std::deque<WideBias> biases;
  with_input(a, [&](auto x) {
    kernels::Buffer interleaved;
    interleave(x, interleaved);
    std::vector<RowsProduct<decltype(x)>> products;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const auto& [matrix, bias] = matrices[i];
      products.emplace_back(x, matrix_rows(matrix), matrix.size(1), biases.emplace_back(bias).data,
                            matrix_rows_out(results[i]));
    }
    run_products(products);
  });
  return results;
}

}  // namespace headroom::ops
