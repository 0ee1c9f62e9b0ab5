#include "product.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "headroom/kernels/cpu/transpose.h"
#include "headroom/kernels/cpu/vector_product.h"

namespace headroom::ops {
namespace {

// x [m, k], w [n, k]: x w^T + b.
using OneDnnLinear = at::Tensor(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                std::string_view activation, c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

// Absent where torch was built without oneDNN, or where a version of torch has it with other arguments.
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

// oneDNN wants its left operand by rows; torch's own copy of a transposed matrix runs on one thread.
at::Tensor by_rows(const at::Tensor& a) {
  if (a.stride(1) == 1 || a.stride(0) != 1 || a.numel() < 4096) {
    return a.contiguous();
  }
  const at::Tensor copy = at::empty(a.sizes(), a.options());
  const float* from = a.const_data_ptr<float>();
  float* to = copy.mutable_data_ptr<float>();
  at::parallel_for(0, a.size(0), 64, [&](std::int64_t begin, std::int64_t end) {
    kernels::transpose({from + begin, a.stride(1)}, a.size(1), end - begin, {to + begin * a.size(1), a.size(1)});
  });
  return copy;
}

// A matrix without gaps, either way round: for anything else (the expanded gradient of a sum, a part of a wider matrix)
// oneDNN takes its plainest loops.
at::Tensor without_gaps(const at::Tensor& b) {
  return b.is_contiguous() || b.t().is_contiguous() ? b : b.contiguous();
}

bool suits_one_dnn(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && a.scalar_type() == at::kFloat && a.numel() > 0 && b.numel() > 0 &&
         at::globalContext().userEnabledMkldnn() && one_dnn_linear();
}

bool suits_vector_product(const at::Tensor& a, const at::Tensor& b) {
  return a.size(0) == 1 && a.is_cpu() && a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat &&
         (b.stride(1) == 1 || b.stride(0) == 1);
}

// Decoding: one row reads each weight once.
at::Tensor vector_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t kNumbers = 1 << 15;  // of the matrix, for a thread at least
  const at::Tensor x = a.contiguous(), y = at::empty({1, b.size(1)}, a.options());
  const std::int64_t n = b.size(0), grain = std::max<std::int64_t>(64, kNumbers / std::max<std::int64_t>(n, 1));
  const bool by_rows = b.stride(1) == 1;
  const kernels::Strided<const float> w{b.const_data_ptr<float>(), by_rows ? b.stride(0) : b.stride(1)};
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, b.size(1), grain, [&](std::int64_t begin, std::int64_t end) {
    if (by_rows) {
      kernels::vector_times_rows(from, n, w, begin, end, to);
    } else {
      kernels::vector_times_columns(from, n, w, begin, end, to);
    }
  });
  return y;
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  if (suits_vector_product(a, b)) {
    const at::Tensor y = vector_product(a, b);
    return bias ? y + *bias : y;
  }
  if (!suits_one_dnn(a, b)) {
    return bias ? at::addmm(*bias, a, b) : a.mm(b);
  }
  return one_dnn_linear()->call(by_rows(a), without_gaps(b).t(), bias, "none", c10::List<std::optional<at::Scalar>>(),
                                "");
}

at::Tensor product_of_columns(const at::Tensor& x, const at::Tensor& y) {
  // One side must be turned to rows: the narrower one, and the result afterwards if that was y.
  return x.size(1) <= y.size(1) || !suits_one_dnn(x, y) ? product(x.t(), y) : by_rows(product(y.t(), x).t());
}

}  // namespace headroom::ops
