#include "composed_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::KeptOperands;
using detail::PackedSequence;
using detail::PassingOperands;
using detail::RawScores;
using detail::Tile;

// Values of every key/value head, [G, S padded, w padded].
void pack_values(const AttentionShape& s, const AttentionTensors& in, std::int64_t b, KeptOperands& values) {
  for (std::int64_t g = 0; g < s.kv_heads; ++g) {
    values.set_rows(g, in.v.rows(b, g), s.keys, s.d_value);
  }
}

// The forward pass of a block.
struct Forward : detail::Composing {
  void run(const Extent& e, RawScores& scores, const KeptOperands& values, PassingOperands& passing) const {
    const std::int64_t b = sequence.b;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      scores.fill(e, h, {tile.head(e, h), Tile::row_stride(e)});
    }
    Buffer inverse(s.heads * e.rows), room;
    block(e, inverse.data());
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const RowsOut to = out.o.rows(b, h, e.row);
      const Strided<float> o = detail::workplace(to, e.rows, s.d_value, room);
      const detail::Left a = passing.left({tile.head(e, h), Tile::row_stride(e)}, e.rows, e.columns);
      detail::multiply({e.rows, s.d_value, e.columns}, a, values[h / (s.heads / s.kv_heads)].from(e.low, 0), o);
      for (std::int64_t i = 0; !in.post.present && i < e.rows; ++i) {
        scaled_copy(o.data + i * o.stride, inverse.data()[i * s.heads + h], s.d_value, o.data + i * o.stride);
      }
      detail::put_back(o, e.rows, s.d_value, to);
    }
  }
};

}  // namespace

std::int64_t composed_blocks(const AttentionShape& s) {
  const std::int64_t rows = detail::composed_rows(s);
  return (s.queries + rows - 1) / rows;
}

void composed_attention_forward(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                                std::int64_t begin, std::int64_t step) {
  Tile tile(s, detail::composed_rows(s));
  PackedSequence sequence;
  KeptOperands values(s.half, s.kv_heads, detail::padded(s.keys), detail::row_width(s.d_value));
  PassingOperands passing(s.half);
  const std::int64_t blocks = composed_blocks(s), rows = detail::composed_rows(s);
  RawScores scores(s, in, rows);
  const Forward forward{{s, in, out, sequence, tile}};
  for (std::int64_t task = begin; task < s.batch * blocks; task += step) {
    const std::int64_t b = task / blocks, row = task % blocks * rows;
    if (sequence.b != b) {
      sequence.pack(s, in, b);
      scores.pack(b);
      pack_values(s, in.attention, b, values);
    }
    forward.run(detail::extent_of(s, row, rows), scores, values, passing);
  }
  tile_product_done();
}

}  // namespace headroom::kernels
