#include "dense_matmul.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/kernels/cpu/matmul/operands.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/shapes.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"

namespace at::native {

// Declared in ATen/native/mkldnn/Matmul.h, which torch does not install: result = beta result + alpha a b in oneDNN,
// with transposed operands read in place. Null if this torch has no such function; throws if the CPU lacks AVX-512.
__attribute__((weak, visibility("default"))) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                                                                float beta, float alpha);

}  // namespace at::native

namespace headroom::ops {
namespace {

// Whether the process runs on, or emulates (HEADROOM_SIMD), a CPU with AVX-512.
bool has_avx512() {
  return std::string_view(kernels::simd_target()).starts_with("AVX3");
}

std::string_view cpu_vendor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") ? "AMD" : __builtin_cpu_is("intel") ? "Intel" : "another";
#else
  return "another";
#endif
}

// The choice depends on the kind of CPU alone, never on a timing, so that one kind of CPU reproduces its results.
// `headroom bench products` measures a row of the table. In bfloat16, torch uses oneDNN on every kind that has the
// instructions (AVX-512 BF16, AMX); they do not matter in float32.
constexpr MatmulChoice kChoices[] = {
    // On CPUs of other vendors than Intel, MKL does not use AVX-512 and reaches half of oneDNN's rate.
    {"AMD", true, MatmulLibrary::one_dnn, MatmulLibrary::one_dnn, "Zen 5"},
    {"Intel", true, MatmulLibrary::one_dnn, MatmulLibrary::one_dnn, nullptr},
    // The tiles reach the machine's rate, and read the transposed operand of a weight gradient in blocks, of which both
    // libraries lose half.
    {"AMD", false, MatmulLibrary::tiles, MatmulLibrary::tiles, "Zen 5 limited to AVX2"},
    {"Intel", false, MatmulLibrary::torch, MatmulLibrary::torch, nullptr},
    // Others, such as ARM, where torch itself chooses among several libraries.
    {"another", true, MatmulLibrary::one_dnn, MatmulLibrary::one_dnn, nullptr},
    {"another", false, MatmulLibrary::torch, MatmulLibrary::torch, nullptr}};

// x [m, k], w [n, k]: x w^T + b.
using OneDnnLinear = at::Tensor(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                std::string_view activation, c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

// Absent if torch was built without oneDNN or has this operator with other arguments.
const std::optional<c10::TypedOperatorHandle<OneDnnLinear>>& one_dnn_linear() {
  static const auto kFound = []() -> std::optional<c10::TypedOperatorHandle<OneDnnLinear>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    try {
      return schema ? std::optional(schema->typed<OneDnnLinear>()) : std::nullopt;
    } catch (const c10::Error&) {
      return std::nullopt;
    }
  }();
  return kFound;
}

// Contiguous, transposed or not: for anything else (the expanded gradient of a sum, part of a wider matrix) oneDNN
// falls back to its reference loops.
at::Tensor without_gaps(const at::Tensor& b) {
  return b.is_contiguous() || b.t().is_contiguous() ? b : b.contiguous();
}

bool suits_one_dnn(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && a.scalar_type() == at::kFloat && a.numel() > 0 && b.numel() > 0 &&
         at::globalContext().userEnabledMkldnn() && one_dnn_linear();
}

// Whether oneDNN reads transposed operands in place.
bool takes_transposed() {
  static const bool kTakes = [] {
    try {
      const at::Tensor a = at::ones({2, 2}), result = at::empty({2, 2});
      return at::native::mkldnn_matmul != nullptr &&
             (at::native::mkldnn_matmul(a.t(), a, result, 0.0F, 1.0F), result.eq(2.0F).all().item<bool>());
    } catch (const c10::Error&) {
      return false;
    }
  }();
  return kTakes;
}

bool suits_gemv(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const at::ScalarType type = a.scalar_type();
  return (!bias || bias->scalar_type() == type) && a.is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         b.scalar_type() == type && (b.stride(1) == 1 || b.stride(0) == 1);
}

// Number of parts in which a matrix is read in parallel. Depends on its size alone, so that the order of summation does
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

// Columns [begin, end) of the product, by the kernel for the vectors' type.
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

// A matrix's rows in parts with separate sums, which are added in order, after the bias. bfloat16 is multiplied in
// pairs of rows, so its parts begin at even rows.
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

// Columns that are computed before they are rounded, few enough to stay in the CPU cache.
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

// One row: one thread reads each part.
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

// The product of several rows and a matrix, with sums in the same order, in blocks of columns that stay in the CPU
// cache from row to row. The blocks do not affect a column's sum.
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

// All blocks of all products in one parallel region.
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

// Calls run(input) with the rows as the kernels for them read them.
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

// The decode path: each weight is read once. Sums and bias are float32, the result is rounded once.
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

// gemv_rows() of several matrices, whose rows must be contiguous, and at least two rows.
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

at::Tensor one_dnn_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const std::optional<at::Tensor> dense_bias = bias ? std::optional(bias->contiguous()) : std::nullopt;
  return one_dnn_linear()->call(a.contiguous(), without_gaps(b).t(), dense_bias, "none",
                                c10::List<std::optional<at::Scalar>>(), "");
}

at::Tensor torch_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  if (!a.is_cpu() || a.scalar_type() != at::kBFloat16) {
    return bias ? at::addmm(*bias, a, b) : a.mm(b);
  }
  if (!kernels::has_fast_bfloat16()) {  // oneDNN would emulate the instructions
    const std::optional<at::Tensor> wide_bias = bias ? std::optional(bias->to(at::kFloat)) : std::nullopt;
    return dense_matmul(a.to(at::kFloat), b.to(at::kFloat), wide_bias).to(at::kBFloat16);
  }
  // oneDNN's AMX tiles read the memory between rows of odd length and multiply it by zero, which gives NaN if that
  // memory holds NaN.
  const at::Tensor left = without_gaps(a), right = without_gaps(b);
  return bias ? at::addmm(*bias, left, right) : left.mm(right);
}

// x^T y without a copy of x^T. oneDNN sums long columns in parts, one per thread. Parts of at most kDepth rows are too
// short for that, so the bits do not depend on the number of threads.
at::Tensor one_dnn_matmul_transposed(const at::Tensor& x, const at::Tensor& y) {
  constexpr std::int64_t kDepth = 1024;
  const std::int64_t n = x.size(0), parts = ceil_div(n, kDepth), depth = ceil_div(n, parts);
  at::Tensor result = at::empty({x.size(1), y.size(1)}, x.options());
  for (std::int64_t i = 0; i < n; i += depth) {
    const std::int64_t rows = std::min(depth, n - i);
    at::native::mkldnn_matmul(x.narrow(0, i, rows).t(), y.narrow(0, i, rows), result, i > 0 ? 1.0F : 0.0F, 1.0F);
  }
  return result;
}

}  // namespace

const MatmulChoice& matmul_choice() {
  static const MatmulChoice& choice = *std::find_if(std::begin(kChoices), std::end(kChoices), [](const auto& c) {
    return c.vendor == cpu_vendor() && c.avx512 == has_avx512();
  });
  return choice;
}

at::Tensor dense_matmul_by(MatmulLibrary library, const at::Tensor& a, const at::Tensor& b,
                           const std::optional<at::Tensor>& bias) {
  if (library == MatmulLibrary::tiles && kernels::tile_product_uses_micro_kernels() && suits_tiles(a, b)) {
    return tile_matmul(a, b, bias);
  }
  return library == MatmulLibrary::one_dnn && suits_one_dnn(a, b) ? one_dnn_matmul(a, b, bias)
                                                                  : torch_matmul(a, b, bias);
}

at::Tensor dense_matmul_transposed_by(MatmulLibrary library, const at::Tensor& x, const at::Tensor& y) {
  return library == MatmulLibrary::one_dnn && suits_one_dnn(x, y) && takes_transposed()
             ? one_dnn_matmul_transposed(x, y)
             : dense_matmul_by(library, x.t(), y);
}

at::Tensor dense_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  if (a.size(0) == 1 && suits_gemv(a, b, bias) && !ManyRows::active()) {
    return gemv_rows(a, b, bias);
  }
  // The order of MKL's sums depends on the number of rows and on alignment, that of oneDNN's does not.
  const MatmulLibrary library = ManyRows::active() ? MatmulLibrary::one_dnn : matmul_choice().rows;
  return with_many_rows(a, [&](const at::Tensor& rows) { return dense_matmul_by(library, rows, b, bias); });
}

at::Tensor dense_matmul_batch_invariant(const at::Tensor& a, const at::Tensor& b,
                                        const std::optional<at::Tensor>& bias) {
  if (a.numel() > 0 && suits_gemv(a, b, bias)) {
    return gemv_rows(a, b, bias);
  }
  std::vector<at::Tensor> rows =
      transformed(a.split(1), [&](const at::Tensor& row) { return dense_matmul(row, b, bias); });
  return at::cat(rows);
}

std::vector<at::Tensor> dense_matmuls_batch_invariant(const at::Tensor& a, const std::vector<MatrixAndBias>& matrices) {
  const bool together = a.size(0) > 1 && a.numel() > 0 && std::all_of(matrices.begin(), matrices.end(), [&](auto& m) {
                          return suits_gemv(a, m.matrix, m.bias) && m.matrix.stride(1) == 1;
                        });
  if (together) {
    return gemv_rows_of_each(a, matrices);
  }
  return transformed(matrices, [&](const auto& m) { return dense_matmul_batch_invariant(a, m.matrix, m.bias); });
}

at::Tensor dense_matmul_transposed(const at::Tensor& x, const at::Tensor& y) {
  return x.size(1) == 1 ? dense_matmul(x.t(), y) : dense_matmul_transposed_by(matmul_choice().weights, x, y);
}

}  // namespace headroom::ops
