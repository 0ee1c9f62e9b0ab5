// What the forward and the backward pass of composed attention share: a sequence's packed operands, and a block's tile
// of all heads.
#pragma once

#include <cstring>

#include "attention_block.h"
#include "headroom/kernels/cpu/composed_attention.h"
#include "headroom/kernels/cpu/head_mix.h"

namespace headroom::kernels::detail {

constexpr std::int64_t kComposedRows = 16;  // with all heads, so that a block stays in the second-level cache

// [heads, rows, columns]: raw scores, composed scores, probabilities, or gradients of one of them.
struct Tile {
  std::vector<float> data;
  explicit Tile(const AttentionShape& s) : data(static_cast<std::size_t>(s.heads * kComposedRows * padded(s.keys))) {}
  float* head(const Extent& e, std::int64_t h) { return data.data() + h * e.rows * e.columns; }
  float* row(const Extent& e, std::int64_t h, std::int64_t i) { return head(e, h) + i * e.columns; }
  HeadRows heads(const Extent& e, std::int64_t i) { return {row(e, 0, i), e.rows * e.columns}; }
  void copy_from(const Tile& other, const AttentionShape& s, const Extent& e) {
    std::memcpy(data.data(), other.data.data(), static_cast<std::size_t>(s.heads * e.rows * e.columns) * sizeof(float));
  }
};

// The key side of one stage for one sequence, its rows padded with zeros.
struct PackedKeyFactors {
  std::vector<float> data;
  std::int64_t width = 0;

  void pack(const AttentionShape& s, const ComposeStage& stage, std::int64_t b) {
    width = padded(s.keys) + kColumnStep;
    const std::int64_t n = stage.factors(stage.key, s.heads);
    data.assign(static_cast<std::size_t>(n * width), 0.0F);
    for (std::int64_t f = 0; f < n; ++f) {
      std::copy_n(stage.key.data + (b * n + f) * s.keys, s.keys, data.data() + f * width);
    }
  }
};

// What mixes query row i of sequence b with the keys from `low` on.
inline HeadMix mix_of(const AttentionShape& s, const ComposeStage& stage, const PackedKeyFactors& keys, std::int64_t b,
                      std::int64_t i, std::int64_t low) {
  HeadMix mix{.heads = s.heads, .groups = stage.groups, .rank = stage.rank, .skip = stage.skip, .fixed = stage.fixed};
  const std::int64_t uw = stage.rank * s.heads;
  const float* query = stage.query.data + (b * s.queries + i) * stage.factors(stage.query, s.heads);
  if (stage.query.low_rank) {
    mix.u_query = query;
    mix.w_query = query + uw;
    query += 2 * uw;
  }
  mix.gate_query = stage.query.gate ? query : nullptr;
  const float* key = keys.data.data() + low;
  mix.key_stride = keys.width;
  if (stage.key.low_rank) {
    mix.u_key = key;
    mix.w_key = key + uw * keys.width;
    key += 2 * uw * keys.width;
  }
  mix.gate_key = stage.key.gate ? key : nullptr;
  return mix;
}

// Columns that hold anything visible to row i.
inline std::int64_t used_columns(const AttentionShape& s, const Extent& e, std::int64_t i) {
  return std::min(e.columns, padded(e.visible_high(s, i)));
}

// One sequence, ready for products: keys as columns, and the key side of both stages.
struct PackedSequence {
  std::int64_t b = -1, key_width = 0;
  std::vector<float> k;  // [G, e, key_width]
  PackedKeyFactors pre, post;

  const float* keys(const AttentionShape& s, std::int64_t h) const {
    return k.data() + h / (s.heads / s.kv_heads) * s.d_head * key_width;
  }

  void pack(const AttentionShape& s, const ComposedTensors& in, std::int64_t sequence) {
    b = sequence;
    key_width = padded(s.keys) + kColumnStep;
    k.resize(static_cast<std::size_t>(s.kv_heads * s.d_head * key_width));
    for (std::int64_t g = 0; g < s.kv_heads; ++g) {
      to_columns(in.attention.k.at(b, g), in.attention.k.row, s.keys, s.d_head, key_width,
                 k.data() + g * s.d_head * key_width);
    }
    if (in.pre.present) {
      pre.pack(s, in.pre, b);
    }
    if (in.post.present) {
      post.pack(s, in.post, b);
    }
  }

  // Products of queries and keys, not scaled.
  void raw_scores(const AttentionShape& s, const ComposedTensors& in, const Extent& e, Tile& tile) const {
    const HeadsView<const float>& q = in.attention.q;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      tile_product({e.rows, e.columns, s.d_head, q.row, key_width, e.columns}, q.at(b, h) + e.row * q.row,
                   keys(s, h) + e.low, tile.head(e, h));
    }
  }

  // Raw scores to what the softmax takes; scales them only if there is something to compose.
  void compose_scores(const AttentionShape& s, const ComposedTensors& in, const Extent& e, Tile& tile) const {
    if (!in.pre.present) {
      return;
    }
    const std::vector<float> scale(static_cast<std::size_t>(s.heads), s.scale);
    for (std::int64_t i = 0; i < e.rows; ++i) {
      mix_heads(mix_of(s, in.pre, pre, b, e.row + i, e.low), scale.data(), tile.heads(e, i), used_columns(s, e, i));
    }
  }

  ScoreRow softmax_row(const AttentionShape& s, const ComposedTensors& in, const Extent& e, std::int64_t i) const {
    ScoreRow row = score_row(s, in.attention, e, b, i, nullptr);
    row.scale = in.pre.present ? 1.0F : s.scale;
    return row;
  }
};

}  // namespace headroom::kernels::detail
