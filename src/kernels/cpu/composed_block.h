// What the forward and the backward pass of composed attention share: a sequence's packed operands, and a block's tile
// of all heads.
#pragma once

#include <cstring>

#include "attention_block.h"
#include "headroom/kernels/cpu/composed_attention.h"
#include "headroom/kernels/cpu/head_mix.h"

namespace headroom::kernels::detail {

constexpr std::int64_t kMixedRows = 4;  // mixed together: what belongs to a key is loaded once for them

// Rows of a block, with all heads: many make good products, few stay near in the caches.
inline std::int64_t composed_rows(const AttentionShape& s) {
  constexpr std::int64_t kNumbers = std::int64_t{1} << 20;
  return std::clamp<std::int64_t>(kNumbers / (s.heads * padded(s.keys)) / 16 * 16, 16, kBlockRows);
}

// [heads, rows, columns]: raw scores, composed scores, probabilities, or gradients of one of them.
struct Tile {
  std::vector<float> data;
  explicit Tile(const AttentionShape& s)
      : data(static_cast<std::size_t>(s.heads * composed_rows(s) * padded(s.keys))) {}
  float* head(const Extent& e, std::int64_t h) { return data.data() + h * e.rows * e.columns; }
  float* row(const Extent& e, std::int64_t h, std::int64_t i) { return head(e, h) + i * e.columns; }
  HeadRows heads(const Extent& e, std::int64_t i, std::int64_t rows) {
    return {row(e, 0, i), e.rows * e.columns, e.columns, rows};
  }
  void copy_from(const Tile& other, const AttentionShape& s, const Extent& e) {
    std::memcpy(data.data(), other.data.data(), static_cast<std::size_t>(s.heads * e.rows * e.columns) * sizeof(float));
  }
  // Zeroes columns [begin, e.columns) of some rows of every head.
  void clear(const AttentionShape& s, const Extent& e, std::int64_t i, std::int64_t rows, std::int64_t begin) {
    for (std::int64_t h = 0; begin < e.columns && h < s.heads; ++h) {
      for (std::int64_t k = i; k < i + rows; ++k) {
        std::fill(row(e, h, k) + begin, row(e, h, k) + e.columns, 0.0F);
      }
    }
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

// What mixes query rows from i on of sequence b with the keys from `low` on.
inline HeadMix mix_of(const AttentionShape& s, const ComposeStage& stage, const PackedKeyFactors& keys, std::int64_t b,
                      std::int64_t i, std::int64_t low) {
  HeadMix mix{.heads = s.heads, .groups = stage.groups, .rank = stage.rank, .skip = stage.skip, .fixed = stage.fixed};
  const std::int64_t uw = stage.rank * s.heads;
  mix.query_stride = stage.factors(stage.query, s.heads);
  const float* query = stage.query.data + (b * s.queries + i) * mix.query_stride;
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

// Calls body(row, rows, columns that hold anything visible to them) for a few rows of the block at a time.
template <class Body>
void for_mixed_rows(const AttentionShape& s, const Extent& e, const Body& body) {
  for (std::int64_t i = 0; i < e.rows; i += kMixedRows) {
    const std::int64_t rows = std::min(kMixedRows, e.rows - i);
    body(i, rows, std::min(e.columns, padded(e.visible_high(s, i + rows - 1))));
  }
}

// One sequence, ready for products: keys as columns, multiplied by the scale of scores, and the key side of both
// stages.
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
    scaled_copy(k.data(), s.scale, static_cast<std::int64_t>(k.size()), k.data());
    if (in.pre.present) {
      pre.pack(s, in.pre, b);
    }
    if (in.post.present) {
      post.pack(s, in.post, b);
    }
  }

  // Scaled products of queries and keys.
  void raw_scores(const AttentionShape& s, const ComposedTensors& in, const Extent& e, Tile& tile) const {
    const HeadsView<const float>& q = in.attention.q;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      tile_product({e.rows, e.columns, s.d_head, q.row, key_width, e.columns}, q.at(b, h) + e.row * q.row,
                   keys(s, h) + e.low, tile.head(e, h));
    }
  }

  // Scores to what the softmax takes, in `to`, which may be the tile itself.
  void compose_scores(const AttentionShape& s, const ComposedTensors& in, const Extent& e, Tile& tile, Tile& to) const {
    if (!in.pre.present) {
      if (&to != &tile) {
        to.copy_from(tile, s, e);
      }
      return;
    }
    for_mixed_rows(s, e, [&](std::int64_t i, std::int64_t rows, std::int64_t columns) {
      mix_heads(mix_of(s, in.pre, pre, b, e.row + i, e.low), nullptr, tile.heads(e, i, rows), to.heads(e, i, rows),
                columns);
    });
  }

  ScoreRow softmax_row(const AttentionShape& s, const ComposedTensors& in, const Extent& e, std::int64_t i) const {
    ScoreRow row = score_row(s, in.attention, e, b, i, nullptr);
    row.scale = 1.0F;
    return row;
  }
};

}  // namespace headroom::kernels::detail
