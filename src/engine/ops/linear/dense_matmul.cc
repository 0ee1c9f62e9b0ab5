#include "dense_matmul.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/many_rows.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/machine/system.h"
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

// torch: its default, which is MKL in float32. tiles: tile_matmul().
enum class MatmulLibrary { one_dnn, torch, tiles };

// The library that multiplies float32 matrices on one kind of CPU. The choice depends on the kind only, never on a
// measured time, so that CPUs of one kind give the same results; docs/performance.md has the measurements. In bfloat16,
// torch uses oneDNN on every kind that has the instructions (AVX-512 BF16, AMX); they do not matter in float32.
struct MatmulChoice {
  std::string_view vendor;
  bool avx512;
  MatmulLibrary library;
};
constexpr MatmulChoice kChoices[] = {
    // On CPUs not made by Intel, MKL does not use AVX-512 and reaches half of oneDNN's rate.
    {"AMD", true, MatmulLibrary::one_dnn},
    {"Intel", true, MatmulLibrary::one_dnn},
    // The tiles reach the machine's peak rate and read the transposed operand of a weight gradient in blocks; both
    // libraries lose half of the rate there.
    {"AMD", false, MatmulLibrary::tiles},
    // MKL reaches the machine's peak rate. MKL_CBWR makes it independent of the number of threads.
    {"Intel", false, MatmulLibrary::torch},
    // On other CPUs, such as ARM, torch itself chooses among several libraries.
    {"another", true, MatmulLibrary::one_dnn},
    {"another", false, MatmulLibrary::torch}};

// x [m, k], w [n, k]: x w^T + b.
using OneDnnLinear = at::Tensor(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                std::string_view activation, c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

// Not set if torch was built without oneDNN or has this operator with other arguments.
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

// Makes b contiguous, transposed or not: for other layouts (the expanded gradient of a sum, part of a wider matrix)
// oneDNN falls back to its reference loops.
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

// Returns x^T y without copying x^T. oneDNN divides long sums into parts, one per thread. Parts of at most kDepth rows
// are too short to be divided, so the bits do not depend on the number of threads.
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

MatmulLibrary chosen_library() {
  static const MatmulLibrary kLibrary = std::ranges::find_if(kChoices, [](const MatmulChoice& c) {
                                          return c.vendor == cpu_vendor() && c.avx512 == has_avx512();
                                        })->library;
  return kLibrary;
}

at::Tensor matmul_by(MatmulLibrary library, const at::Tensor& a, const at::Tensor& b,
                     const std::optional<at::Tensor>& bias) {
  if (library == MatmulLibrary::tiles && kernels::tile_product_uses_micro_kernels() && suits_tiles(a, b)) {
    return tile_matmul(a, b, bias);
  }
  return library == MatmulLibrary::one_dnn && suits_one_dnn(a, b) ? one_dnn_matmul(a, b, bias)
                                                                  : torch_matmul(a, b, bias);
}

}  // namespace

at::Tensor dense_matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  if (a.size(0) == 1 && suits_gemv(a, b, bias) && !ManyRows::active()) {
    return gemv_rows(a, b, bias);
  }
  // The order of MKL's sums depends on the number of rows and on alignment; the order of oneDNN's sums does not.
  const MatmulLibrary library = ManyRows::active() ? MatmulLibrary::one_dnn : chosen_library();
  return with_many_rows(a, [&](const at::Tensor& rows) { return matmul_by(library, rows, b, bias); });
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
  const bool together = a.size(0) > 1 && a.numel() > 0 && std::ranges::all_of(matrices, [&](auto& m) {
                          return suits_gemv(a, m.matrix, m.bias) && m.matrix.stride(1) == 1;
                        });
  if (together) {
    return gemv_rows_of_each(a, matrices);
  }
  return transformed(matrices, [&](const auto& m) { return dense_matmul_batch_invariant(a, m.matrix, m.bias); });
}

at::Tensor dense_matmul_transposed(const at::Tensor& x, const at::Tensor& y) {
  if (x.size(1) == 1) {
    return dense_matmul(x.t(), y);
  }
  const MatmulLibrary library = chosen_library();
  return library == MatmulLibrary::one_dnn && suits_one_dnn(x, y) && takes_transposed()
             ? one_dnn_matmul_transposed(x, y)
             : matmul_by(library, x.t(), y, std::nullopt);
}

}  // namespace headroom::ops
