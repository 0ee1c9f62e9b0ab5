// Shared by the forward and backward passes of blocked attention: a block's extent, packed operands and scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "engine/kernels/cpu/matmul/operands.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/ceil_div.h"
#include "softmax_rows.h"

namespace headroom::kernels {

constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kColumnStep = 64;  // columns are padded to a multiple of this, to limit the number of shapes
// The last columns of a block may be hidden from this number of first rows, and the first columns from the other rows.
constexpr std::int64_t kEarlyRows = 32;

inline std::int64_t padded(std::int64_t n) {
  return round_up(n, kColumnStep);
}

// Stride of a block of scores. Rows at multiples of 4 KiB would compete for the same few cache sets.
inline std::int64_t score_stride(std::int64_t columns) {
  return columns % 1024 == 0 ? columns + row_width(1) : columns;
}
inline std::int64_t longest_score_stride(const AttentionShape& s) {
  return padded(s.keys) + row_width(1);
}

// A block of one head: query rows [row, row + rows) against the keys [low, low + columns) visible to any of them.
struct Extent {
  std::int64_t row, rows, low, columns = 0;  // `columns` is padded and may extend beyond the last key
  std::int64_t early_columns = 0;            // columns visible to the first kEarlyRows rows, padded
  std::int64_t late_low = 0;                 // first columns hidden from the other rows, a multiple of kEarlyRows
  // Set if the block has several runs of columns: columns of all runs together, and columns of the runs before this
  // one.
  std::int64_t together = 0, at = 0;

  std::int64_t stride() const { return score_stride(std::max(columns, together)); }  // of the whole block's scores
  std::int64_t late_rows() const { return early_columns < columns || late_low > 0 ? rows - kEarlyRows : 0; }
  std::int64_t visible_low(const AttentionShape& s, std::int64_t i) const {
    if (!s.causal || s.window == 0) {
      return 0;
    }
    return std::max<std::int64_t>(0, s.keys - s.queries + row + i - s.window + 1) - low;
  }
  std::int64_t visible_high(const AttentionShape& s, std::int64_t i) const {
    return (s.causal ? std::min(s.keys, s.keys - s.queries + row + i + 1) : s.keys) - low;
  }
  // Row i's position score with key low + j is in column shift(i) + j of the block's position scores.
  std::int64_t shift(std::int64_t i) const { return rows - 1 - i; }
  // The block's position scores cover offsets [first_offset, first_offset + offset_columns), one more than needed.
  std::int64_t first_offset(const AttentionShape& s) const { return low + s.queries - row - rows; }
  std::int64_t offset_columns() const { return padded(columns + rows); }
};

inline Extent extent_of(const AttentionShape& s, std::int64_t row, std::int64_t most_rows = kBlockRows) {
  Extent e{row, std::min(most_rows, s.queries - row), 0, 0, 0};
  const std::int64_t high = s.causal ? s.keys - s.queries + row + e.rows : s.keys;
  if (s.causal && s.window > 0) {
    const std::int64_t first = s.keys - s.queries + row - s.window + 1;
    e.low = std::max<std::int64_t>(0, first) / kColumnStep * kColumnStep;
    e.late_low =
        e.rows > kEarlyRows ? std::max<std::int64_t>(0, first + kEarlyRows - e.low) / kEarlyRows * kEarlyRows : 0;
  }
  e.columns = padded(std::max<std::int64_t>(0, high - e.low));
  e.early_columns = e.columns;
  if (s.causal && e.rows > kEarlyRows) {
    const std::int64_t visible = std::max<std::int64_t>(0, s.keys - s.queries + row + kEarlyRows - e.low);
    e.early_columns = std::min(e.columns, round_up(visible, kEarlyRows));
  }
  return e;
}

// A block of one head whose columns are divided into runs: a block mask hides the columns between runs.
struct ScoreBlock {
  Extent all;  // its columns are the columns of all runs
  std::vector<Extent> runs;
};

// Matrix multiplications with a block of scores [rows, columns]. They skip columns after early_columns in the first
// kEarlyRows rows and columns before late_low in the others, which the mask hides: scores there are undefined before
// the softmax and 0 after it. The scores are the whole block's, of which a run uses its columns; `b` and `sums` begin
// at the extent's first column.

// scores = a [rows, k] b [k, columns]
inline void multiply_to_scores(const Extent& e, std::int64_t k, const Left& a, const Right& b, float* block) {
  const std::int64_t late = e.late_rows(), low = e.late_low > 0 ? e.late_low : e.early_columns;
  float* scores = block + e.at;
  multiply({e.late_low > 0 ? e.rows - late : e.rows, e.early_columns, k}, a, b, {scores, e.stride()});
  if (late > 0) {
    multiply({late, e.columns - low, k}, a.from(kEarlyRows), b.from(0, low),
             {scores + kEarlyRows * e.stride() + low, e.stride()});
  }
}

// c [rows, n] = scores b [columns, n], or += if `add`
inline void multiply_scores(const Extent& e, std::int64_t n, const Left& block, const Right& b, Strided<float> c,
                            bool add = false) {
  const Left scores = block.ahead(e.at);
  const std::int64_t late = e.late_rows();
  multiply({e.rows - late, n, e.early_columns}, scores, b, c, add);
  if (late > 0) {
    multiply({late, n, e.columns - e.late_low}, scores.from(kEarlyRows).ahead(e.late_low), b.from(e.late_low, 0),
             {c.data + kEarlyRows * c.stride, c.stride}, add);
  }
}

// sums [m, columns] += a [m, rows] scores
inline void add_product_with_scores(const Extent& e, std::int64_t m, const Left& a, const Right& block,
                                    Strided<float> sums) {
  const Right scores = block.from(0, e.at);
  const auto add = [&](std::int64_t row, std::int64_t rows, std::int64_t low, std::int64_t high) {
    if (low < high) {
      multiply({m, high - low, rows}, a.ahead(row), scores.from(row, low), {sums.data + low, sums.stride}, true);
    }
  };
  const std::int64_t late = e.late_rows();
  add(0, e.rows - late, 0, std::min(e.late_low, e.early_columns));
  add(0, e.rows, e.late_low, e.early_columns);
  add(e.rows - late, late, std::max(e.late_low, e.early_columns), e.columns);
}

// Columns to allocate for packed keys and offsets. A block may read up to its padding beyond the last one.
inline std::int64_t key_width(const AttentionShape& s) {
  return padded(s.keys) + kColumnStep;
}
inline std::int64_t offset_width(const AttentionShape& s) {
  return s.offsets() + kBlockRows + 2 * kColumnStep;
}

// Gradients of a block's position scores, moved from key columns to offset columns, with zeros elsewhere: [rows, n],
// starting at offset `first`, which is even to keep bfloat16 pairs of offsets together.
struct OffsetGradients {
  std::int64_t first, n;
  Rows rows;  // of d's type, stored in `buffer`

  // d: [rows, columns]. buffer: at least [rows, offset_columns].
  OffsetGradients(const AttentionShape& s, const Extent& e, const Left& d, Buffer& buffer)
      : first(e.first_offset(s) / 2 * 2), n(e.offset_columns()) {
    if (d.bf16 == nullptr) {
      rows = {place(s, e, Strided<const float>{d.f32, d.stride}, buffer.data()), n};
    } else {
      auto* halves = reinterpret_cast<BFloat16*>(buffer.data());
      rows = {place(s, e, Strided<const BFloat16>{d.bf16, d.stride}, halves), n};
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

// One head's keys and offsets, packed as transposed matrices, with zeros beyond the last column.
struct PackedHead {
  std::int64_t b = 0, h = 0;
  PackedOperands k, r;  // [e, width]
  ScratchOperands scratch;

  PackedHead(const AttentionShape& s, bool relative)
      : k(s.bf16, 1, s.d_head, key_width(s)), r(s.bf16, relative ? 1 : 0, s.d_head, offset_width(s)), scratch(s.bf16) {}

  void pack(const AttentionShape& s, const AttentionTensors& in, std::int64_t sequence, std::int64_t head) {
    b = sequence;
    h = head;
    k.set_columns(0, in.k.rows(b, h / (s.heads / s.kv_heads)), s.keys);
    if (in.relative()) {
      r.set_columns(0, in.r.rows(0, h), s.offsets());
    }
  }

  // Writes a block's unscaled scores [rows, stride] and position scores [rows, offset_columns].
  void scores(const AttentionShape& s, const AttentionTensors& in, const ScoreBlock& block, float* to,
              float* positions) {
    const Extent& e = block.all;
    const Left q = scratch.left(in.q.rows(b, h, e.row), e.rows, s.d_head);
    for (const Extent& run : block.runs) {
      multiply_to_scores(run, s.d_head, q, k[0].from(0, run.low), to);
    }
    if (in.relative()) {
      const std::int64_t n = e.offset_columns();
      const Left position = scratch.left(in.q_position.rows(b, h, e.row), e.rows, s.d_head);
      multiply({e.rows, n, s.d_head}, position, r[0].from(0, e.first_offset(s)), {positions, n});
    }
  }
};

// Adds a head's sink to a row's sum of exponentials, unless no key is visible. If the sum overflows, the row's weights
// are 0.
inline void add_sink(const float* sink, std::int64_t h, float* log_sum, float* sum) {
  if (sink == nullptr || !(*sum > 0.0F)) {
    return;
  }
  const float most = *log_sum - std::log(*sum);  // the row's maximum, subtracted before exp()
  *sum += std::exp(sink[h] - most);
  *log_sum = std::max(*log_sum, sink[h]) + std::log1p(std::exp(-std::abs(*log_sum - sink[h])));
}

// The probability of a row's sink, 0 if no key is visible. The sink's gradient is minus this probability times delta.
inline float sink_probability(const float* sink, std::int64_t h, float log_sum) {
  return std::exp(sink[h] - log_sum);
}

// delta_i = sum_j p_ij dp_ij of a block's rows, computed as dO_i . o_i, in one loop over all rows to overlap cache
// misses.
inline void row_deltas(const AttentionShape& s, const Extent& e, const Rows& d_o, const Rows& o, float* to) {
  for (std::int64_t i = 0; i < e.rows; ++i) {
    to[i] = dot(d_o.from(i), o.from(i), s.d_value);
  }
}

// Row i of a block of sequence b, whose scores are complete except for the bias that hides padded keys.
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

}  // namespace headroom::kernels
