// Shapes, including symbolic shapes, and checks of tensors.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>

#include "headroom/core/error.h"
#include "one_pass.h"

namespace headroom::ops {

// A size as text.
inline std::string text_of(const c10::SymInt& n) {
  return c10::str(n);
}

// "2x3x4"
inline std::string shape_of(at::SymIntArrayRef sizes) {
  std::string text;
  for (const c10::SymInt& n : sizes) {
    text += (text.empty() ? std::string() : "x") + text_of(n);
  }
  return text;
}
inline std::string shape_of(const at::Tensor& t) {
  return shape_of(t.sym_sizes());
}

// Returns an uninitialised contiguous tensor of t's shape and dtype.
inline at::Tensor dense_like(const at::Tensor& t) {
  return at::empty_symint(t.sym_sizes(), t.options());
}

// Returns uninitialised [B, H, T, e] stored as [B, T, H, e], the layout that the output projection reads.
inline at::Tensor empty_by_token(const at::Tensor& like) {
  return transposed(
      at::empty_symint({like.sym_size(0), like.sym_size(2), like.sym_size(1), like.sym_size(3)}, like.options()), 1, 2);
}

// The same with the width of v, for head outputs.
inline at::Tensor results_by_token(const at::Tensor& q, const at::Tensor& v) {
  return transposed(at::empty_symint({q.sym_size(0), q.sym_size(2), q.sym_size(1), v.sym_size(3)}, q.options()), 1, 2);
}

// t.to(type), without calling the operator if `t` already has this dtype.
inline at::Tensor in_type(const at::Tensor& t, at::ScalarType type) {
  return t.scalar_type() == type ? t : t.to(type);
}

// Checks of arguments from Python. They throw Error naming the operator and the argument.
inline void require_type(const char* op, const char* name, const at::Tensor& t, at::ScalarType type) {
  if (t.scalar_type() != type) {
    fail("{}: {} must be {}, got {}", op, name, c10::toString(type), c10::toString(t.scalar_type()));
  }
}
// Requires the same floating dtype for all tensors.
inline void require_floating(const char* op, const char* names, at::TensorList tensors) {
  const at::ScalarType type = tensors[0].scalar_type();
  for (const at::Tensor& t : tensors) {
    if (!t.is_floating_point() || t.scalar_type() != type) {
      fail("{}: {} must have one floating dtype, got {}", op, names, c10::toString(t.scalar_type()));
    }
  }
}

// Requires one tensor of the same shape for each parameter of an optimizer's step.
inline void require_alike(const char* op, const char* names, at::TensorList tensors, at::TensorList parameters) {
  if (tensors.size() != parameters.size()) {
    fail("{}: {} must be one for each of {} parameters, got {}", op, names, parameters.size(), tensors.size());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (tensors[i].sizes() != parameters[i].sizes()) {
      fail("{}: {} must have the shape of their parameters, got {} for parameter {} of {}", op, names,
           shape_of(tensors[i]), i, shape_of(parameters[i]));
    }
  }
}

// False if the tensor is a tracer's placeholder: its values must then not be read, nor derived values be cached.
inline bool has_values(const at::Tensor& t) {
  return !t.is_meta() && !t.key_set().has(c10::DispatchKey::Python);
}

}  // namespace headroom::ops
