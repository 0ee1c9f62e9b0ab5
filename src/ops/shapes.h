// Shapes that may not be known yet when an operator is traced.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>

namespace headroom::ops {

// A size for a message.
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

// Without gaps, whatever the strides of `t`.
inline at::Tensor dense_like(const at::Tensor& t) {
  return at::empty_symint(t.sym_sizes(), t.options());
}

// False where a tensor is traced: nothing can be asked of its numbers then.
inline bool has_numbers(const at::Tensor& t) {
  return !t.is_meta() && !t.key_set().has(c10::DispatchKey::Python);
}

}  // namespace headroom::ops
