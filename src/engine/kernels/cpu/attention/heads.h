// Tensors of heads in float32 or in bfloat16, whichever they are: kernels read them where they lie, compute in float32
// and write results where they belong.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/products/bfloat16.h"

namespace headroom::kernels {

// Rows of float32 or of bfloat16 numbers; the other pointer is null, or both are where there is nothing.
template <class Single, class Half>
struct RowsOf {
  Single* single = nullptr;
  Half* half = nullptr;
  std::int64_t stride = 0;

  RowsOf from(std::int64_t i) const { return ahead(i * stride); }
  RowsOf ahead(std::int64_t n) const {
    return {single == nullptr ? nullptr : single + n, half == nullptr ? nullptr : half + n, stride};
  }
};
using Rows = RowsOf<const float, const BFloat16>;
using RowsOut = RowsOf<float, BFloat16>;

// A [B, heads, rows, e] tensor whose last axis is contiguous.
template <class R>
struct HeadsOf {
  R first;                           // of the first sequence and head
  std::int64_t batch = 0, head = 0;  // strides in elements

  bool there() const { return first.single != nullptr || first.half != nullptr; }
  R rows(std::int64_t b, std::int64_t h, std::int64_t row = 0) const {
    return first.ahead(b * batch + h * head + row * first.stride);
  }
};
using Heads = HeadsOf<Rows>;
using HeadsOut = HeadsOf<RowsOut>;

}  // namespace headroom::kernels
