#include "one_pass.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/matmul/operands.h"
#include "heads_on_cpu.h"
#include "shapes.h"

namespace headroom::ops {
namespace {

// Calls body(begin, end) for ranges of rows of n elements; few rows are processed by the calling thread.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t n, const Body& body) {
  constexpr std::int64_t kElements = 1 << 15;
  at::parallel_for(0, rows, std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, n)), body);
}

// Views a contiguous tensor as rows of n elements.
kernels::RowsOut rows_out(const at::Tensor& t, std::int64_t n) {
  kernels::RowsOut rows = matrix_rows_out(t);
  rows.stride = n;
  return rows;
}

}  // namespace

bool suits_loop(const at::Tensor& t) {
  return c10::InferenceMode::is_enabled() && t.is_cpu() && has_values(t);
}

bool suits_one_pass(const at::Tensor& t) {
  return suits_loop(t) && t.dim() > 1 && t.numel() > 0 &&
         (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16) && t.stride(-1) == 1;
}

at::Tensor rms_norm_once(const at::Tensor& x, const at::Tensor& scale, double epsilon, at::ScalarType type) {
  const std::int64_t n = x.size(-1);
  const at::Tensor squares = at::empty(x.sizes(), x.options()), to = at::empty(x.sizes(), x.options().dtype(type));
  const float* from = x.const_data_ptr<float>();
  float* square = squares.mutable_data_ptr<float>();
  for_rows(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      square[i] = from[i] * from[i];
    }
  });
  const at::Tensor sums = squares.sum(-1);  // torch's order of summation
  const float *sum = sums.const_data_ptr<float>(), *factor = scale.const_data_ptr<float>();
  for_rows(x.numel() / n, n, [&](std::int64_t begin, std::int64_t end) {
    kernels::Buffer staging;
    for (std::int64_t row = begin; row < end; ++row) {
      const float inverse = 1.0F / std::sqrt(sum[row] / static_cast<float>(n) + static_cast<float>(epsilon));
      const kernels::RowsOut place = rows_out(to, n).from(row);
      const kernels::Strided<float> y = kernels::staged_rows(place, 1, n, staging);
      for (std::int64_t i = 0; i < n; ++i) {
        y.data[i] = from[row * n + i] * inverse * factor[i];
      }
      kernels::store_rows(y, 1, n, place);
    }
  });
  return to;
}

at::Tensor add_once(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor to = at::empty(x.sizes(), x.options());
  const float* a = x.const_data_ptr<float>();
  const auto* b = y.const_data_ptr<kernels::BFloat16>();
  float* sum = to.mutable_data_ptr<float>();
  for_rows(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::widen_to_float32(b + begin, end - begin, sum + begin);
    for (std::int64_t i = begin; i < end; ++i) {
      sum[i] = a[i] + sum[i];
    }
  });
  return to;
}

at::Tensor rotate_once(const at::Tensor& x, const at::Tensor& rotations, std::span<const std::int64_t> first) {
  const std::int64_t heads = x.size(1), n = x.size(2), e = x.size(3), half = rotations.size(2);
  const at::Tensor to = at::empty(x.sizes(), x.options());
  const float* table = rotations.const_data_ptr<float>();
  const std::int64_t sines = rotations.stride(0), next = rotations.stride(1);
  const kernels::Heads from = view(x);
  const kernels::HeadsOut out = view_out(to);
  for_rows(x.size(0) * heads * n, e, [&](std::int64_t begin, std::int64_t end) {
    kernels::Buffer read, written;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t b = row / (heads * n), h = row / n % heads, i = row % n;
      const float* cosine = table + (first[static_cast<std::size_t>(b)] + i) * next;
      const float* sine = cosine + sines;
      const float* a = kernels::as_float32(from.rows(b, h, i), 1, e, read).data;
      const kernels::RowsOut place = out.rows(b, h, i);
      const kernels::Strided<float> y = kernels::staged_rows(place, 1, e, written);
      for (std::int64_t j = 0; j < half; ++j) {
        y.data[j] = a[j] * cosine[j] - a[j + half] * sine[j];
        y.data[j + half] = a[j + half] * cosine[j] + a[j] * sine[j];
      }
      std::copy(a + 2 * half, a + e, y.data + 2 * half);
      kernels::store_rows(y, 1, e, place);
    }
  });
  return to;
}

}  // namespace headroom::ops
