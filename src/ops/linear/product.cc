#include "ops/linear/product.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "headroom/kernels/cpu/buffer.h"
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

bool suits_vector_product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const at::ScalarType type = a.scalar_type();
  return a.size(0) == 1 && (!bias || bias->scalar_type() == type) && a.is_cpu() &&
         (type == at::kFloat || type == at::kBFloat16) && b.scalar_type() == type &&
         (b.stride(1) == 1 || b.stride(0) == 1);
}

// In how many parts a matrix is read, by as many threads at the most: a matter of its size alone, so that what is added
// to what does not depend on the threads.
std::int64_t parts_of(std::int64_t numbers) {
  constexpr std::int64_t kNumbers = 1 << 15, kMost = 8;
  std::int64_t parts = 1;
  while (parts < kMost && numbers / (2 * parts) >= kNumbers) {
    parts *= 2;
  }
  return parts;
}

// Each part is read from its beginning to its end, and has a sum of its own.
template <class T>
void add_rows(const float* x, std::int64_t n, kernels::Strided<const T> w, std::int64_t columns, const float* bias,
              float* y) {
  const std::int64_t parts = parts_of(n * columns), rows = (n + parts - 1) / parts;
  kernels::Buffer sums(parts * columns);
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = std::min(n, part * rows);
      const kernels::Strided<const T> mine{w.data + first * w.stride, w.stride};
      kernels::vector_times_rows(x + first, std::min(rows, n - first), mine, 0, columns, sums.data() + part * columns);
    }
  });
  bias != nullptr ? std::copy_n(bias, columns, y) : std::fill_n(y, columns, 0.0F);
  for (std::int64_t part = 0; part < parts; ++part) {
    const float* sum = sums.data() + part * columns;
    for (std::int64_t j = 0; j < columns; ++j) {
      y[j] += sum[j];
    }
  }
}

template <class T>
void multiply_columns(const float* x, std::int64_t n, kernels::Strided<const T> w, std::int64_t columns,
                      const float* bias, float* y) {
  const std::int64_t parts = parts_of(n * columns);
  at::parallel_for(0, columns, (columns + parts - 1) / parts, [&](std::int64_t begin, std::int64_t end) {
    kernels::vector_times_columns(x, n, w, begin, end, y);
    for (std::int64_t j = begin; bias != nullptr && j < end; ++j) {
      y[j] += bias[j];
    }
  });
}

// Decoding: one row reads each weight once. Sums and bias are float32, the result is rounded once.
template <class T>
at::Tensor vector_product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  const at::Tensor x = a.to(at::kFloat).contiguous(), y = at::empty({1, b.size(1)}, x.options());
  const at::Tensor offset = bias ? bias->to(at::kFloat).contiguous() : at::Tensor();
  const bool by_rows = b.stride(1) == 1;
  const auto run = by_rows ? add_rows<T> : multiply_columns<T>;
  run(x.const_data_ptr<float>(), b.size(0), {b.const_data_ptr<T>(), by_rows ? b.stride(0) : b.stride(1)}, b.size(1),
      bias ? offset.const_data_ptr<float>() : nullptr, y.mutable_data_ptr<float>());
  return y.to(a.scalar_type());
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  if (suits_vector_product(a, b, bias)) {
    return a.scalar_type() == at::kFloat ? vector_product<float>(a, b, bias)
                                         : vector_product<kernels::BFloat16>(a, b, bias);
  }
  if (!suits_one_dnn(a, b)) {
    return bias ? at::addmm(*bias, a, b) : a.mm(b);
  }
  const std::optional<at::Tensor> dense_bias = bias ? std::optional(bias->contiguous()) : std::nullopt;
  return one_dnn_linear()->call(by_rows(a), without_gaps(b).t(), dense_bias, "none",
                                c10::List<std::optional<at::Scalar>>(), "");
}

at::Tensor product_of_columns(const at::Tensor& x, const at::Tensor& y) {
  // One side must be turned to rows: the narrower one, and the result afterwards if that was y.
  return x.size(1) <= y.size(1) || !suits_one_dnn(x, y) ? product(x.t(), y) : by_rows(product(y.t(), x).t());
}

}  // namespace headroom::ops
