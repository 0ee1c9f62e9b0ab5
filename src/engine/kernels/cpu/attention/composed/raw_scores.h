// Scores of one head in a block of rows before composition, and their backward pass: dot products or mixtures of keys,
// with or without the relative term.
#pragma once

#include <vector>

#include "composed_attention.h"
#include "engine/kernels/cpu/attention/mixture/mixture_block.h"

namespace headroom::kernels {

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
  // Mixtures only: the dot products of one head with the keys of all components, and one row of them.
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
  // `d`: the gradient of the scores that fill() wrote, 0 in columns that are not visible to a row.
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

}  // namespace headroom::kernels
