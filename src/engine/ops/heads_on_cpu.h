// Converts tensors of heads for the CPU's attention kernels; shared by the operators that call them.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <type_traits>

#include "argument_struct.h"
#include "engine/kernels/cpu/attention/attention.h"
#include "shapes.h"

namespace headroom::ops {

// The dtype in which kernels read this tensor.
inline at::ScalarType type_for_kernels(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

// Converted to type_for_kernels(), with a contiguous last axis.
inline at::Tensor prepared(const at::Tensor& given) {
  const at::Tensor t = given.to(type_for_kernels(given));
  return t.stride(-1) == 1 || t.size(-1) == 1 ? t : t.contiguous();
}

// Views a prepared tensor [B, heads, rows, e], or [heads, rows, e] shared by all sequences.
template <class R>
kernels::HeadsOf<R> heads_of(const at::Tensor& t) {
  const auto find = [&]<class T>(T*& data) {
    if constexpr (std::is_const_v<T>) {
      data = t.const_data_ptr<std::remove_const_t<T>>();
    } else {
      data = t.mutable_data_ptr<T>();
    }
  };
  kernels::HeadsOf<R> to{{.stride = t.stride(-2)}, t.dim() == 4 ? t.stride(0) : 0, t.stride(-3)};
  t.scalar_type() == at::kBFloat16 ? find(to.first.bf16) : find(to.first.f32);
  return to;
}
inline kernels::Heads view(const at::Tensor& t) {
  return heads_of<kernels::Rows>(t);
}
inline kernels::HeadsOut view_out(const at::Tensor& t) {
  return heads_of<kernels::RowsOut>(t);
}

// Uninitialised gradients of `like` [B, G, rows, e] per query head and per part of a sequence, [parts * B, heads, rows,
// e]; float32 if they are still to be summed.
inline at::Tensor empty_per_head(const at::Tensor& like, std::int64_t heads, std::int64_t parts = 1) {
  const bool whole = parts == 1 && heads == like.size(1);
  return at::empty({parts * like.size(0), heads, like.size(2), like.size(3)},
                   like.options().dtype(whole ? type_for_kernels(like) : at::kFloat));
}

// Sums gradients over the query heads that share a key head: [B, H, S, e] to [B, G, S, e].
inline at::Tensor per_group(const at::Tensor& per_head, const at::Tensor& like) {
  const c10::SymInt g = like.sym_size(1), h = per_head.sym_size(1);
  const at::Tensor sum = g == h ? per_head : per_head.unflatten_symint(1, {g, h / g}).sum(2);
  return sum.to(like.scalar_type());
}

// [B, S]: 0 for valid keys, -infinity for others.
inline at::Tensor key_bias(const at::Tensor& valid_keys) {
  return at::zeros(valid_keys.sizes(), at::kFloat)
      .masked_fill_(valid_keys.logical_not(), -std::numeric_limits<float>::infinity());
}

}  // namespace headroom::ops
