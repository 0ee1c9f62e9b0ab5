#include "views.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "one_pass.h"
#include "shapes.h"

namespace headroom::ops {
namespace {

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
