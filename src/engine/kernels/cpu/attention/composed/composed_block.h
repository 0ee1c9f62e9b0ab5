// Shared by the forward and backward passes of composed attention: a sequence's packed operands, and a block's scores
// of all heads.
#pragma once

#include <cmath>
#include <vector>

#include "composed_attention.h"
#include "engine/kernels/cpu/attention/attention_block.h"
#include "engine/kernels/cpu/attention/mixture/mixture_rows.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "head_map.h"

namespace headroom::kernels {

// Computes the scores of one head in a block of rows before composition: dot products or mixtures of keys, with or
// without the relative position term.

// Owns one sequence's keys and the offsets, packed; one object per thread. Letters as in mixture_attention.h, with P =
// 1 for plain dot products.
class RawScores {
 public:
  // `rows`: maximum number of rows of a block.
  RawScores(const AttentionShape& shape, const ComposedTensors& tensors, std::int64_t rows);

  void pack(std::int64_t sequence);
  void fill(const Extent& e, std::int64_t h, Strided<float> to);

 private:
  friend class RawScoreGradients;
  bool relative() const { return in.attention.relative(); }
  std::int64_t group(std::int64_t h) const { return h / (s.heads / s.kv_heads); }
  const Heads& keys(std::int64_t p) const {
    return in.mixture != nullptr ? in.mixture->keys[static_cast<std::size_t>(p)] : in.attention.k;
  }
  // Scale of the dot products; a mixture's factors include it.
  float product_scale() const { return in.mixture != nullptr ? 1.0F : s.scale; }
  void multiply_with(const Extent& e, std::int64_t h, std::int64_t p, Strided<float> to);
  // Mixtures only: the dot products of one head with the keys of all components, and one row of these dot products.
  void multiply_all(const Extent& e, std::int64_t h);
  MixtureRow mixture_row(const Extent& e, std::int64_t h, std::int64_t i) const;

  const AttentionShape& s;
  const ComposedTensors& in;
  std::int64_t products, width, offset_width, tile, b = -1;
  PackedOperands k, r;  // [P, G, e, width], [H, e, offset_width]
  ScratchOperands scratch;
  Buffer tiles;      // mixtures only, [P, rows, columns]: dot products, later their gradients
  Buffer positions;  // [rows, offset columns], later their gradients
};

class RawScoreGradients {
 public:
  RawScoreGradients(RawScores& raw, const ComposedGradients& gradients);

  // Call after RawScores::pack().
  void pack();
  // Call before a task's first block and after its last.
  void begin(std::int64_t task);
  void finish();
  // `d` is the gradient of the scores that fill() wrote; it must be 0 in columns that are not visible to a row.
  void add(const Extent& e, std::int64_t h, Strided<float> d);

 private:
  void add_mixture(const Extent& e, std::int64_t h, Strided<float> d, Strided<float> d_q);
  void add_product(const Extent& e, std::int64_t h, std::int64_t p, const Left& d, Strided<float> d_q);
  void add_positions(const Extent& e, std::int64_t h, const OffsetGradients& d);
  void unpack(const Buffer& from, std::int64_t i, std::int64_t width, std::int64_t n, const RowsOut& to);

  RawScores& raw;
  const AttentionShape& s;
  const ComposedGradients& out;
  std::int64_t task = 0;
  PackedOperands keys, offsets;  // [P, G, width, e padded], [H, offset width, e padded]
  Buffer d_keys, d_offsets;      // [P, H, e, width], [H, e, offset width], not yet scaled
  Buffer staging;                // see staged_rows()
};

constexpr std::int64_t kMappedRows = 4;  // rows of a block that are mapped together

// Padding of rows whose length is a multiple of 256 bytes: one cache line, to avoid cache conflicts.
constexpr std::int64_t kRowGap = 16;

// Rows of a block, for all heads: enough for efficient matrix multiplications, few enough to stay in the caches.
inline std::int64_t composed_rows(const AttentionShape& s) {
  constexpr std::int64_t kScores = std::int64_t{1} << 21;
  const std::int64_t row = std::max<std::int64_t>(s.heads * padded(s.keys), 1);
  return std::clamp<std::int64_t>(kScores / row / 16 * 16, 16, kBlockRows);
}

// [heads, rows, columns]: raw scores, composed scores, probabilities, or the gradient of one of them. Rows and heads
// are padded: a map reads the same column of all heads and a few rows, which at multiples of a page would evict each
// other from L1.
struct Tile {
  static constexpr std::int64_t kHeadGap = 64;
  Buffer data;
  Tile(const AttentionShape& s, std::int64_t rows) : data(s.heads * (rows * (padded(s.keys) + kRowGap) + kHeadGap)) {}
  static std::int64_t row_stride(const Extent& e) { return e.columns + kRowGap; }
  static std::int64_t head_stride(const Extent& e) { return e.rows * row_stride(e) + kHeadGap; }
  float* head(const Extent& e, std::int64_t h) { return data.data() + h * head_stride(e); }
  float* row(const Extent& e, std::int64_t h, std::int64_t i) { return head(e, h) + i * row_stride(e); }
  HeadRows heads(const Extent& e, std::int64_t i, std::int64_t rows) {
    return {row(e, 0, i), head_stride(e), row_stride(e), rows};
  }
};

inline void copy_rows(const HeadRows& from, std::int64_t heads, std::int64_t columns, const HeadRows& to) {
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < from.rows; ++i) {
      std::copy_n(from.data + h * from.head_stride + i * from.row_stride, columns,
                  to.data + h * to.head_stride + i * to.row_stride);
    }
  }
}

// Zeroes columns [begin, end).
inline void clear_rows(const HeadRows& rows, std::int64_t heads, std::int64_t begin, std::int64_t end) {
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      float* row = rows.data + h * rows.head_stride + i * rows.row_stride;
      std::fill(row + begin, row + end, 0.0F);
    }
  }
}

// The key factors of one stage for one sequence, transposed to [F, S], with rows padded with zeros.
struct PackedKeyFactors {
  Buffer data;
  std::int64_t width = 0;

  void pack(const AttentionShape& s, const ComposeStage& stage, std::int64_t b) {
    width = padded(s.keys) + kRowGap;
    const std::int64_t n = stage.key.factors(s.heads);
    data.reserve(n * width);
    transpose({stage.key.data + b * stage.key.batch, stage.key.row}, s.keys, n, {data.data(), width});
    for (std::int64_t f = 0; f < n; ++f) {
      std::fill(data.data() + f * width + s.keys, data.data() + (f + 1) * width, 0.0F);
    }
  }
};

// Pointers to u, w and the gate of one side, stored in this order with `length` elements for each rank of u and w. Null
// where the side has no such part.
template <class T>
struct SideFactors {
  T *u = nullptr, *w = nullptr, *gate = nullptr;

  SideFactors(T* data, const ComposeSide& side, std::int64_t length) {
    if (side.rank > 0) {
      u = data;
      w = data + side.rank * length;
      data += 2 * side.rank * length;
    }
    gate = side.gate ? data : nullptr;
  }
};

// The map for sequence b's query rows from i on and its keys from `low` on.
inline HeadMap map_of(const AttentionShape& s, const ComposeStage& stage, const PackedKeyFactors& keys, std::int64_t b,
                      std::int64_t i, std::int64_t low) {
  HeadMap map{.heads = s.heads, .groups = stage.groups, .rank = stage.rank(), .skip = stage.skip, .fixed = stage.fixed};
  map.query_stride = stage.query.factors(s.heads);
  const SideFactors query(stage.query.data + (b * s.queries + i) * map.query_stride, stage.query, s.heads);
  map.u_query = query.u;
  map.w_query = query.w;
  map.gate_query = query.gate;
  map.key_stride = keys.width;
  const SideFactors key(keys.data.data() + low, stage.key, s.heads * keys.width);
  map.u_key = key.u;
  map.w_key = key.w;
  map.gate_key = key.gate;
  return map;
}

// A few rows of a block that go through both stages together, so that intermediate values stay in the caches.
struct MappedRows {
  std::int64_t first, rows;  // rows of the block
  std::int64_t columns;      // columns visible to any of them, padded
};

template <class Body>
void for_mapped_rows(const AttentionShape& s, const Extent& e, const Body& body) {
  for (std::int64_t i = 0; i < e.rows; i += kMappedRows) {
    const std::int64_t rows = std::min(kMappedRows, e.rows - i);
    const std::int64_t visible = std::max<std::int64_t>(0, e.visible_high(s, i + rows - 1));
    body(MappedRows{i, rows, std::min(e.columns, padded(visible))});
  }
}

// The key factors of both stages for one sequence.
struct PackedSequence {
  std::int64_t b = -1;
  PackedKeyFactors pre, post;

  void pack(const AttentionShape& s, const ComposedTensors& in, std::int64_t sequence) {
    b = sequence;
    if (in.pre.present) {
      pre.pack(s, in.pre, b);
    }
    if (in.post.present) {
      post.pack(s, in.post, b);
    }
  }

  // The softmax arguments of row i of the block.
  ScoreRow softmax_row(const AttentionShape& s, const ComposedTensors& in, const Extent& e, std::int64_t i,
                       std::int64_t columns) const {
    ScoreRow row = visible_row(s, e, i, in.attention.key_bias, b);
    row.n = columns;
    return row;
  }
};

// exp_row() with the sink of head h, or the mixture's epsilon, added to the sum.
inline float exp_row_of(const ComposedTensors& in, const ScoreRow& row, std::int64_t h, float* scores, float* sum) {
  float log_sum = exp_row(row, scores, sum);
  add_sink(in.attention.sink, h, &log_sum, sum);
  if (in.mixture == nullptr || in.mixture->epsilon == 0.0F || !(*sum > 0.0F)) {
    return log_sum;
  }
  const float most = log_sum - std::log(*sum);
  *sum += in.mixture->epsilon * std::exp(-most);
  return most + std::log(*sum);
}

// Turns a block's raw scores into composed probabilities, in place.
struct BlockComposer {
  const AttentionShape& s;
  const ComposedTensors& in;
  const AttentionResult& out;
  const PackedSequence& sequence;
  Tile& tile;  // scores

  // `inverse` [rows, heads] receives 1 over the sums of exponentials; without a post stage the caller divides by the
  // sums.
  void rows(const Extent& e, const MappedRows& m, float* inverse) const {
    const std::int64_t b = sequence.b;
    const HeadRows rows = tile.heads(e, m.first, m.rows);
    if (in.pre.present) {
      map_heads(map_of(s, in.pre, sequence.pre, b, e.row + m.first, e.low), nullptr, rows, rows, m.columns);
    }
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < m.rows; ++i) {
        float sum = 0.0F;
        const ScoreRow row = sequence.softmax_row(s, in, e, m.first + i, e.columns);
        out.log_sum[(b * s.heads + h) * s.queries + e.row + m.first + i] =
            exp_row_of(in, row, h, tile.row(e, h, m.first + i), &sum);
        inverse[i * s.heads + h] = inverse_of(sum);
      }
    }
    if (in.post.present) {
      map_heads(map_of(s, in.post, sequence.post, b, e.row + m.first, e.low), inverse, rows, rows, m.columns);
    }
  }
  void block(const Extent& e, float* inverse) const {
    for_mapped_rows(s, e, [&](const MappedRows& m) { rows(e, m, inverse + m.first * s.heads); });
  }
};

}  // namespace headroom::kernels
