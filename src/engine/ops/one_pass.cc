#include "one_pass.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/kernels/cpu/matmul/operands.h"
#include "headroom/core/error.h"
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

bool suits_direct_view(const at::Tensor& t) {
  return suits_loop(t) && t.layout() == at::kStrided;
}

// Returns a view with t's memory and dtype.
at::Tensor direct_view(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(t.storage()),
                                                             t.key_set(), t.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

// Returns the sizes with -1 replaced; nullopt if they are symbolic or do not match.
std::optional<c10::DimVector> sizes_for(const at::Tensor& t, at::SymIntArrayRef given) {
  c10::DimVector sizes;
  std::optional<std::size_t> open;
  std::int64_t known = 1;
  for (const c10::SymInt& size : given) {
    const std::optional<std::int64_t> n = size.maybe_as_int();
    if (!n || *n == 0 || *n < -1 || (*n == -1 && open)) {
      return std::nullopt;
    }
    if (*n == -1) {
      open = sizes.size();
    } else {
      known *= *n;
    }
    sizes.push_back(*n);
  }
  const std::int64_t all = t.numel();
  if (all == 0 || all % known != 0 || (!open && all != known)) {
    return std::nullopt;
  }
  if (open) {
    sizes[*open] = all / known;
  }
  return sizes;
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

at::Tensor reshaped(const at::Tensor& t, at::SymIntArrayRef sizes) {
  if (suits_direct_view(t) && t.is_contiguous()) {
    if (const std::optional<c10::DimVector> known = sizes_for(t, sizes)) {
      c10::DimVector strides(known->size());
      std::int64_t stride = 1;
      for (std::size_t axis = known->size(); axis-- > 0;) {
        strides[axis] = stride;
        stride *= (*known)[axis];
      }
      return direct_view(t, *known, strides, t.storage_offset());
    }
  }
  return t.reshape_symint(sizes);
}

at::Tensor transposed(const at::Tensor& t, std::int64_t a, std::int64_t b) {
  if (!suits_direct_view(t)) {
    return t.transpose(a, b);
  }
  c10::DimVector sizes(t.sizes().begin(), t.sizes().end()), strides(t.strides().begin(), t.strides().end());
  const auto first = static_cast<std::size_t>(a), second = static_cast<std::size_t>(b);
  std::swap(sizes.at(first), sizes.at(second));
  std::swap(strides.at(first), strides.at(second));
  return direct_view(t, sizes, strides, t.storage_offset());
}

at::Tensor narrowed(const at::Tensor& t, std::int64_t axis, std::int64_t first, std::int64_t count) {
  if (!suits_direct_view(t)) {
    return t.narrow(axis, first, count);
  }
  if (axis >= t.dim() || first < 0 || count < 0 || first + count > t.size(axis)) {
    fail("narrowed: [{}, {}) of axis {} must lie within {}", first, first + count, axis, shape_of(t));
  }
  c10::DimVector sizes(t.sizes().begin(), t.sizes().end());
  sizes[static_cast<std::size_t>(axis)] = count;
  return direct_view(t, sizes, t.strides(), t.storage_offset() + first * t.stride(axis));
}

}  // namespace headroom::ops
