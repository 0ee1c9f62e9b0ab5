// Tensors of heads as the CPU's attention kernels want them, shared by the operators that call those.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <type_traits>

#include "described.h"
#include "engine/kernels/cpu/attention/attention.h"
#include "shapes.h"

namespace headroom::ops {

// The numbers that kernels take this tensor in.
inline at::ScalarType type_for_kernels(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

// In those, with a contiguous last axis.
inline at::Tensor prepared(const at::Tensor& given) {
  const at::Tensor t = given.to(type_for_kernels(given));
  return t.stride(-1) == 1 || t.size(-1) == 1 ? t : t.contiguous();
}

// A prepared tensor [B, heads, rows, e], or [heads, rows, e] for every sequence, as rows of type R.
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
  t.scalar_type() == at::kBFloat16 ? find(to.first.half) : find(to.first.single);
  return to;
}
inline kernels::Heads view(const at::Tensor& t) {
  return heads_of<kernels::Rows>(t);
}
inline kernels::HeadsOut view_out(const at::Tensor& t) {
  return heads_of<kernels::RowsOut>(t);
}

// Room for the gradient of `like` [B, G, rows, e] for each of `heads` heads and of `parts` of the batch: float32 if
// that is to be added up.
inline at::Tensor room_per_head(const at::Tensor& like, std::int64_t heads, std::int64_t parts = 1) {
  const bool whole = parts == 1 && heads == like.size(1);
  return at::empty({parts * like.size(0), heads, like.size(2), like.size(3)},
                   like.options().dtype(whole ? type_for_kernels(like) : at::kFloat));
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
