#include "composed_block.h"
#include "headroom/kernels/cpu/vector_product.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::KeptOperands;
using detail::MappedRows;
using detail::PackedSequence;
using detail::PassingOperands;
using detail::RawScores;
using detail::Tile;

// Values of every key/value head, [G, S padded, e padded].
void pack_values(const AttentionShape& s, const AttentionTensors& in, std::int64_t b, KeptOperands& values) {
  for (std::int64_t g = 0; g < s.kv_heads; ++g) {
    values.set_rows(g, {in.v.at(b, g), in.v.row}, s.keys, s.d_head);
  }
}

// What the forward pass of a block needs.
struct Forward {
  const AttentionShape& s;
  const ComposedTensors& in;
  const AttentionResult& out;
  const PackedSequence& sequence;
  Tile& tile;

  // Scores of a few rows to composed probabilities, in their place. `inverse` [rows, heads] is 1 over their sums of
  // exponentials.
  void rows(const Extent& e, const MappedRows& m, float* inverse) const {
    const std::int64_t b = sequence.b;
    const HeadRows rows = tile.heads(e, m.first, m.rows);
    if (in.pre.present) {
      map_heads(detail::map_of(s, in.pre, sequence.pre, b, e.row + m.first, e.low), nullptr, rows, rows, m.columns);
    }
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < m.rows; ++i) {
        float sum = 0.0F;
        const ScoreRow row = sequence.softmax_row(s, in, e, m.first + i, e.columns);
        out.log_sum[(b * s.heads + h) * s.queries + e.row + m.first + i] =
            detail::exp_row_of(in, row, tile.row(e, h, m.first + i), &sum);
        inverse[i * s.heads + h] = sum > 0.0F ? 1.0F / sum : 0.0F;
      }
    }
    if (in.post.present) {
      map_heads(detail::map_of(s, in.post, sequence.post, b, e.row + m.first, e.low), inverse, rows, rows, m.columns);
    }
  }

  void block(const Extent& e, RawScores& scores, const KeptOperands& values, PassingOperands& passing) const {
    const std::int64_t b = sequence.b;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      scores.fill(e, h, {tile.head(e, h), Tile::row_stride(e)});
    }
    Buffer inverse(s.heads * e.rows);
    detail::for_mapped_rows(s, e, [&](const MappedRows& m) { rows(e, m, inverse.data() + m.first * s.heads); });
    for (std::int64_t h = 0; h < s.heads; ++h) {
      float* o = out.o.at(b, h) + e.row * out.o.row;
      const detail::Left a = passing.left({tile.head(e, h), Tile::row_stride(e)}, e.rows, e.columns);
      detail::multiply({e.rows, s.d_head, e.columns}, a, values[h / (s.heads / s.kv_heads)].from(e.low, 0),
                       {o, out.o.row});
      for (std::int64_t i = 0; !in.post.present && i < e.rows; ++i) {
        scaled_copy(o + i * out.o.row, inverse.data()[i * s.heads + h], s.d_head, o + i * out.o.row);
      }
    }
  }

  // Few queries: every key and offset is read where it lies.
  void few_scores(const Extent& e, std::int64_t h) const {
    const AttentionTensors& a = in.attention;
    const std::int64_t n = std::min(e.columns, s.keys - e.low), g = h / (s.heads / s.kv_heads), b = sequence.b;
    Buffer positions(a.q_position.data != nullptr ? n : 0);
    for (std::int64_t i = 0; i < e.rows; ++i) {
      float* row = tile.row(e, h, i);
      vector_times_columns(a.q.at(b, h) + i * a.q.row, s.d_head, {a.k.at(b, g) + e.low * a.k.row, a.k.row}, 0, n, row);
      if (a.q_position.data != nullptr) {
        const std::int64_t first = e.first_offset(s) + e.shift(i), there = std::min(n, s.offsets() - first);
        vector_times_columns(a.q_position.at(b, h) + i * a.q_position.row, s.d_head,
                             {a.r.at(0, h) + first * a.r.row, a.r.row}, 0, there, positions.data());
        for (std::int64_t j = 0; j < there; ++j) {
          row[j] += positions.data()[j];
        }
      }
      scaled_copy(row, s.scale, n, row);
      std::fill(row + n, row + e.columns, 0.0F);
    }
  }

  void few_values(const Extent& e, std::int64_t h, const float* inverse) const {
    const std::int64_t n = std::min(e.columns, s.keys - e.low), g = h / (s.heads / s.kv_heads), b = sequence.b;
    const HeadsView<const float>& v = in.attention.v;
    for (std::int64_t i = 0; i < e.rows; ++i) {
      float* o = out.o.at(b, h) + i * out.o.row;
      vector_times_rows(tile.row(e, h, i), n, {v.at(b, g) + e.low * v.row, v.row}, 0, s.d_head, o);
      if (!in.post.present) {
        scaled_copy(o, inverse[i * s.heads + h], s.d_head, o);
      }
    }
  }
};

}  // namespace

void composed_attention_few_queries(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                                    const ForRanges& for_ranges) {
  const Extent e = detail::extent_of(s, 0, s.queries);
  Tile tile(s, s.queries);
  PackedSequence sequence;
  Buffer inverse(s.heads * s.queries);
  const Forward forward{s, in, out, sequence, tile};
  const auto for_heads = [&](const auto& body) {
    for_ranges(s.heads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = begin; h < end; ++h) {
        body(h);
      }
    });
  };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    sequence.pack(s, in, b);
    for_heads([&](std::int64_t h) { forward.few_scores(e, h); });
    detail::for_mapped_rows(s, e, [&](const MappedRows& m) { forward.rows(e, m, inverse.data() + m.first * s.heads); });
    for_heads([&](std::int64_t h) { forward.few_values(e, h, inverse.data()); });
  }
}

std::int64_t composed_blocks(const AttentionShape& s) {
  const std::int64_t rows = detail::composed_rows(s);
  return (s.queries + rows - 1) / rows;
}

void composed_attention_forward(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                                std::int64_t begin, std::int64_t step) {
  Tile tile(s, detail::composed_rows(s));
  PackedSequence sequence;
  KeptOperands values(s.half, s.kv_heads, detail::padded(s.keys), detail::row_width(s.d_head));
  PassingOperands passing(s.half);
  const std::int64_t blocks = composed_blocks(s), rows = detail::composed_rows(s);
  RawScores scores(s, in, rows);
  const Forward forward{s, in, out, sequence, tile};
  for (std::int64_t task = begin; task < s.batch * blocks; task += step) {
    const std::int64_t b = task / blocks, row = task % blocks * rows;
    if (sequence.b != b) {
      sequence.pack(s, in, b);
      scores.pack(b);
      pack_values(s, in.attention, b, values);
    }
    forward.block(detail::extent_of(s, row, rows), scores, values, passing);
  }
  tile_product_done();
}

}  // namespace headroom::kernels
