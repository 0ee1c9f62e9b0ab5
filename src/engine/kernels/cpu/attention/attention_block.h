// What the forward and the backward pass of blocked attention share: the block's extent, packed operands, scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention.h"
#include "engine/kernels/cpu/products/buffer.h"
#include "engine/kernels/cpu/products/tile_product.h"
#include "engine/kernels/cpu/rows.h"
#include "operands.h"
#include "softmax_rows.h"

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
  // Row i's entry j of the position scores is at first_offset(i) + j of the block's offsets.
  std::int64_t shift(std::int64_t i) const { return rows - 1 - i; }
  // The block's offsets are [low + T - 1 - (row + rows - 1), ... + offset_columns), one more than it needs.
  std::int64_t first_offset(const AttentionShape& s) const { return low + s.queries - row - rows; }
  std::int64_t offset_columns() const { return padded(columns + rows); }
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

// How far apart packed rows of e numbers lie: whole cache lines.
inline std::int64_t row_width(std::int64_t e) {
  constexpr std::int64_t kLine = 16;
  return (e + kLine - 1) / kLine * kLine;
}

// Columns that keys have room in, and offsets: a block reads at most its padding beyond the last.
inline std::int64_t key_width(const AttentionShape& s) {
  return padded(s.keys) + kColumnStep;
}
inline std::int64_t offset_width(const AttentionShape& s) {
  return s.offsets() + kBlockRows + 2 * kColumnStep;
}

// A block's gradients [rows, columns] of position scores put back to where their offsets stand, 0 elsewhere:
// [rows, n], from offset `first` on, which is even so that pairs of offsets stay together.
struct OffsetGradients {
  std::int64_t first, n;
  Rows rows;  // in the type of products

  // `room` [rows, offset columns] keeps them.
  OffsetGradients(const AttentionShape& s, const Extent& e, const Left& d, Buffer& room)
      : first(e.first_offset(s) / 2 * 2), n(e.offset_columns()) {
    if (d.half == nullptr) {
      rows = {place(s, e, Strided<const float>{d.single, d.stride}, room.data()), nullptr, n};
    } else {
      auto* halves = reinterpret_cast<BFloat16*>(room.data());
      rows = {nullptr, place(s, e, Strided<const BFloat16>{d.half, d.stride}, halves), n};
    }
  }

 private:
  template <class T>
  const T* place(const AttentionShape& s, const Extent& e, Strided<const T> d, T* to) const {
    for (std::int64_t i = 0; i < e.rows; ++i) {
      T* row = to + i * n;
      const std::int64_t begin = e.shift(i) + e.first_offset(s) - first;
      std::fill(row, row + begin, T(0.0F));
      std::copy_n(d.data + i * d.stride, e.columns, row + begin);
      std::fill(row + begin + e.columns, row + n, T(0.0F));
    }
    return to;
  }
};

// One head's keys and offsets with their rows turned into columns, zero beyond the last.
struct PackedHead {
  std::int64_t b = 0, h = 0;
  KeptOperands k, r;  // [e, width]
  PassingOperands passing;

  PackedHead(const AttentionShape& s, bool relative)
      : k(s.half, 1, s.d_head, key_width(s)), r(s.half, relative ? 1 : 0, s.d_head, offset_width(s)), passing(s.half) {}

  void pack(const AttentionShape& s, const AttentionTensors& in, std::int64_t sequence, std::int64_t head) {
    b = sequence;
    h = head;
    k.set_columns(0, in.k.rows(b, h / (s.heads / s.kv_heads)), s.keys);
    if (in.relative()) {
      r.set_columns(0, in.r.rows(0, h), s.offsets());
    }
  }

  // Raw scores of a block [rows, columns] and its position scores [rows, offset_columns].
  void scores(const AttentionShape& s, const AttentionTensors& in, const Extent& e, float* to, float* positions) {
    const Left q = passing.left(in.q.rows(b, h, e.row), e.rows, s.d_head);
    multiply({e.rows, e.columns, s.d_head}, q, k[0].from(0, e.low), {to, e.columns});
    if (in.relative()) {
      const std::int64_t n = e.offset_columns();
      const Left position = passing.left(in.q_position.rows(b, h, e.row), e.rows, s.d_head);
      multiply({e.rows, n, s.d_head}, position, r[0].from(0, e.first_offset(s)), {positions, n});
    }
  }
};

// Adds a head's sink to the sum of exponentials of a row, if it sees anything. Where the sum overflows, the row's
// weights are 0.
inline void add_sink(const float* sink, std::int64_t h, float* log_sum, float* sum) {
  if (sink == nullptr || !(*sum > 0.0F)) {
    return;
  }
  const float most = *log_sum - std::log(*sum);  // what the exponentials are relative to
  *sum += std::exp(sink[h] - most);
  *log_sum = std::max(*log_sum, sink[h]) + std::log1p(std::exp(-std::abs(*log_sum - sink[h])));
}

// The sink's own share of a row, to which its gradient is proportional: minus this times sum_j p_j d_p_j. 0 in a row
// that sees nothing.
inline float sink_share(const float* sink, std::int64_t h, float log_sum) {
  return std::exp(sink[h] - log_sum);
}

// sum_j p_j d_p_j of a block's rows, which is d_o . o. All rows in one loop: none of them waits for memory alone.
inline void mean_gradients(const AttentionShape& s, const Extent& e, const Rows& d_o, const Rows& o, float* to) {
  for (std::int64_t i = 0; i < e.rows; ++i) {
    to[i] = dot(d_o.from(i), o.from(i), s.d_value);
  }
}

// Row i of a block of sequence b whose scores are finished but for the bias of padded keys.
inline ScoreRow visible_row(const AttentionShape& s, const Extent& e, std::int64_t i, const float* key_bias,
                            std::int64_t b) {
  return {.low = std::max<std::int64_t>(0, e.visible_low(s, i)),
          .high = e.visible_high(s, i),
          .n = e.columns,
          .scale = 1.0F,
          .position = nullptr,
          .bias = key_bias != nullptr ? key_bias + b * s.keys + e.low : nullptr};
}

inline ScoreRow score_row(const AttentionShape& s, const AttentionTensors& in, const Extent& e, std::int64_t b,
                          std::int64_t i, const float* positions) {
  ScoreRow row = visible_row(s, e, i, in.key_bias, b);
  row.scale = s.scale;
  row.position = in.relative() ? positions + i * e.offset_columns() + e.shift(i) : nullptr;
  return row;
}

}  // namespace headroom::kernels::detail
