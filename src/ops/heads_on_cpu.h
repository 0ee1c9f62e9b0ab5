// Tensors of heads as the CPU's attention kernels want them, shared by the operators that call those.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <optional>

#include "headroom/kernels/cpu/attention.h"
#include "ops/described.h"

namespace headroom::ops {

// With a contiguous last axis, as the kernels want it.
inline at::Tensor by_rows_of_heads(const at::Tensor& t) {
  return t.stride(-1) == 1 || t.size(-1) == 1 ? t : t.contiguous();
}

// The same in numbers of type T.
template <class T>
at::Tensor prepared_as(const at::Tensor& t) {
  return by_rows_of_heads(t.to(c10::CppTypeToScalarType<T>::value));
}
inline at::Tensor prepared(const at::Tensor& t) {
  return prepared_as<float>(t);
}

template <class T>
kernels::HeadsView<T> view(const at::Tensor& t) {
  T* data = nullptr;
  if constexpr (std::is_const_v<T>) {
    data = t.const_data_ptr<std::remove_const_t<T>>();
  } else {
    data = t.mutable_data_ptr<T>();
  }
  return t.dim() == 4 ? kernels::HeadsView<T>{data, t.stride(0), t.stride(1), t.stride(2)}
                      : kernels::HeadsView<T>{data, 0, t.stride(0), t.stride(1)};
}

// [B, H, T, e] lying as [B, T, H, e], as the projection after it reads it.
inline at::Tensor empty_by_token(const at::Tensor& like, at::ScalarType type = at::kFloat) {
  return at::empty_symint({like.sym_size(0), like.sym_size(2), like.sym_size(1), like.sym_size(3)},
                          like.options().dtype(type))
      .transpose(1, 2);
}

// Adds up what heads that share a key gave: [B, H, S, e] to [B, G, S, e].
inline at::Tensor per_group(const at::Tensor& per_head, const at::Tensor& like) {
  const c10::SymInt g = like.sym_size(1), h = per_head.sym_size(1);
  const at::Tensor sum = g == h ? per_head : per_head.unflatten_symint(1, {g, h / g}).sum(2);
  return sum.to(like.scalar_type());
}

// 0 for valid keys, -infinity for others, [B, S].
inline at::Tensor key_bias(const at::Tensor& valid_keys) {
  return at::zeros(valid_keys.sizes(), at::kFloat)
      .masked_fill_(valid_keys.logical_not(), -std::numeric_limits<float>::infinity());
}

}  // namespace headroom::ops
