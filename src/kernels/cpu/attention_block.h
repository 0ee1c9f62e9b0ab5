// What the forward and the backward pass of blocked attention share: the block's extent, packed operands, scores.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headroom/kernels/cpu/attention.h"
#include "headroom/kernels/cpu/buffer.h"
#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/tile_product.h"
#include "headroom/kernels/cpu/transpose.h"

namespace headroom::kernels::detail {

constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kColumnStep = 64;  // columns are padded to it: few shapes, few micro-kernels

inline std::int64_t padded(std::int64_t n) {
  return (n + kColumnStep - 1) / kColumnStep * kColumnStep;
}

// Rows [row, row + rows) of one head against the keys [low, low + columns) that any of them sees.
struct Extent {
  std::int64_t row, rows, low, columns;  // columns is padded and may reach beyond the last key
  std::int64_t visible_low(const AttentionShape& s, std::int64_t i) const {
    if (!s.causal || s.window == 0) {
      return 0;
    }
    return std::max<std::int64_t>(0, s.keys - s.queries + row + i - s.window + 1) - low;
  }
  std::int64_t visible_high(const AttentionShape& s, std::int64_t i) const {
    return (s.causal ? std::min(s.keys, s.keys - s.queries + row + i + 1) : s.keys) - low;
  }
  // Row i's entry j of the position scores stands at first_offset(i) + j of the block's offsets.
  std::int64_t shift(std::int64_t i) const { return rows - 1 - i; }
  // The block's offsets are [low + T - 1 - (row + rows - 1), ... + offset_columns).
  std::int64_t first_offset(const AttentionShape& s) const { return low + s.queries - row - rows; }
  std::int64_t offset_columns() const { return padded(columns + rows - 1); }
};

inline Extent extent_of(const AttentionShape& s, std::int64_t row, std::int64_t most_rows = kBlockRows) {
  Extent e{row, std::min(most_rows, s.queries - row), 0, 0};
  const std::int64_t high = s.causal ? s.keys - s.queries + row + e.rows : s.keys;
  if (s.causal && s.window > 0) {
    e.low = std::max<std::int64_t>(0, s.keys - s.queries + row - s.window + 1) / kColumnStep * kColumnStep;
  }
  e.columns = padded(std::max<std::int64_t>(0, high - e.low));
  return e;
}

// [n, e] rows to [e, width] columns, the rest zero.
inline void to_columns(const float* from, std::int64_t stride, std::int64_t n, std::int64_t e, std::int64_t width,
                       float* to) {
  transpose({from, stride}, n, e, {to, width});
  for (std::int64_t c = 0; width > n && c < e; ++c) {
    std::fill(to + c * width + n, to + (c + 1) * width, 0.0F);
  }
}

// How far apart packed rows of e numbers lie: whole cache lines.
inline std::int64_t row_width(std::int64_t e) {
  constexpr std::int64_t kLine = 16;
  return (e + kLine - 1) / kLine * kLine;
}

// n rows, of `most` that there is room for and that become zero beyond them, row_width(e) apart.
inline void to_rows(const float* from, std::int64_t stride, std::int64_t n, std::int64_t e, std::int64_t most,
                    float* to) {
  const std::int64_t width = row_width(e);
  for (std::int64_t j = 0; j < n; ++j) {
    std::copy_n(from + j * stride, e, to + j * width);
  }
  std::fill(to + n * width, to + most * width, 0.0F);
}

// One head's keys and offsets with their rows turned into columns, zero beyond the last.
struct PackedHead {
  std::int64_t b = 0, h = 0, key_width = 0, offset_width = 0;
  Buffer k, r;  // [e, width]

  void pack(const AttentionShape& s, const AttentionTensors& in, std::int64_t sequence, std::int64_t head) {
    b = sequence;
    h = head;
    const std::int64_t g = h / (s.heads / s.kv_heads);
    key_width = padded(s.keys) + kColumnStep;
    k.make_room(s.d_head * key_width);
    to_columns(in.k.at(b, g), in.k.row, s.keys, s.d_head, key_width, k.data());
    if (in.q_position.data != nullptr) {
      // A block reads at most its padding beyond the last offset.
      offset_width = s.offsets() + kBlockRows + 2 * kColumnStep;
      r.make_room(s.d_head * offset_width);
      to_columns(in.r.at(0, h), in.r.row, s.offsets(), s.d_head, offset_width, r.data());
    }
  }

  // Raw scores of a block [rows, columns] and its position scores [rows, offset_columns].
  void scores(const AttentionShape& s, const AttentionTensors& in, const Extent& e, float* to, float* positions) const {
    tile_product({e.rows, e.columns, s.d_head, in.q.row, key_width, e.columns}, in.q.at(b, h) + e.row * in.q.row,
                 k.data() + e.low, to);
    if (in.q_position.data != nullptr) {
      const std::int64_t n = e.offset_columns();
      tile_product({e.rows, n, s.d_head, in.q_position.row, offset_width, n},
                   in.q_position.at(b, h) + e.row * in.q_position.row, r.data() + e.first_offset(s), positions);
    }
  }
};

inline ScoreRow score_row(const AttentionShape& s, const AttentionTensors& in, const Extent& e, std::int64_t b,
                          std::int64_t i, const float* positions) {
  return {.low = std::max<std::int64_t>(0, e.visible_low(s, i)),
          .high = e.visible_high(s, i),
          .n = e.columns,
          .scale = s.scale,
          .position = in.q_position.data != nullptr ? positions + i * e.offset_columns() + e.shift(i) : nullptr,
          .bias = in.key_bias != nullptr ? in.key_bias + b * s.keys + e.low : nullptr};
}

}  // namespace headroom::kernels::detail
