// Views of tensors for the CPU kernels, and conversions of per-head tensors for attention.
#pragma once

#include <ATen/ATen.h>

#include <limits>

#include "argument_struct.h"
#include "engine/kernels/cpu/attention/attention.h"
#include "shapes.h"

namespace headroom::ops {

// Returns the dtype in which kernels read this tensor.
inline at::ScalarType type_for_kernels(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

// Returns `given` converted to type_for_kernels(), with a contiguous last axis.
inline at::Tensor prepared(const at::Tensor& given) {
  const at::Tensor t = in_type(given, type_for_kernels(given));
  return t.stride(-1) == 1 || t.size(-1) == 1 ? t : t.contiguous();
}

// Views a float32 or bfloat16 tensor as rows of its last axis; no rows if undefined.
inline kernels::Rows matrix_rows(const at::Tensor& t) {
  if (!t.defined()) {
    return {};
  }
  const std::int64_t stride = t.dim() > 1 ? t.stride(-2) : t.numel();
  return t.scalar_type() == at::kBFloat16 ? kernels::Rows(t.const_data_ptr<c10::BFloat16>(), stride)
                                          : kernels::Rows(t.const_data_ptr<float>(), stride);
}
inline kernels::RowsOut matrix_rows_out(const at::Tensor& t) {
  const std::int64_t stride = t.dim() > 1 ? t.stride(-2) : t.numel();
  return t.scalar_type() == at::kBFloat16 ? kernels::RowsOut(t.mutable_data_ptr<c10::BFloat16>(), stride)
                                          : kernels::RowsOut(t.mutable_data_ptr<float>(), stride);
}

// Views a prepared tensor [B, heads, rows, e], or [heads, rows, e] shared by all sequences.
inline kernels::Heads view(const at::Tensor& t) {
  return {matrix_rows(t), t.dim() == 4 ? t.stride(0) : 0, t.stride(-3)};
}
inline kernels::HeadsOut view_out(const at::Tensor& t) {
  return {matrix_rows_out(t), t.dim() == 4 ? t.stride(0) : 0, t.stride(-3)};
}

// Returns uninitialised gradients of `like` [B, G, rows, e] per query head and per part of a sequence, [parts * B,
// heads, rows, e]; float32 if they must still be summed.
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

// Returns [B, S]: 0 for valid keys, -infinity for others.
inline at::Tensor key_bias(const at::Tensor& valid_keys) {
  return at::zeros(valid_keys.sizes(), at::kFloat)
      .masked_fill_(valid_keys.logical_not(), -std::numeric_limits<float>::infinity());
}

}  // namespace headroom::ops
