#include "composed_block.h"

namespace headroom::kernels {
namespace {

// Few queries of one sequence: every key, value and offset is read where it lies.
struct FewComposed {
  const detail::Composing& composing;
  const detail::Extent e;

  // Keys that the extent reaches.
  std::int64_t keys() const { return std::min(e.columns, composing.s.keys - e.low); }

  void dot_products(const detail::QueryScores& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    Buffer widened;
    detail::vector_times_columns(detail::floats(in.attention.q.rows(at.b, at.h, at.query), 1, s.d_head, widened).data,
                                 s.d_head, in.attention.k.rows(at.b, at.group(s), at.low), keys(), row);
    scaled_copy(row, s.scale, keys(), row);
  }

  void mixtures(const detail::QueryScores& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    Buffer products(static_cast<std::int64_t>(in.mixture->keys.size()) * e.columns);
    detail::multiply_where_they_lie(s, *in.mixture, at, keys(), {products.data(), e.columns});
    mixture_content_row(detail::key_columns(s, e),
                        detail::mixture_row(s, *in.mixture, at, {products.data(), e.columns}), row);
  }

  void add_positions(const detail::QueryScores& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    const std::int64_t first = e.first_offset(s) + e.shift(at.query), there = std::min(keys(), s.offsets() - first);
    Buffer positions(there), widened;
    const Strided<const float> q =
        detail::floats(in.attention.q_position.rows(at.b, at.h, at.query), 1, s.d_head, widened);
    detail::vector_times_columns(q.data, s.d_head, in.attention.r.rows(0, at.h, first), there, positions.data());
    for (std::int64_t j = 0; j < there; ++j) {
      row[j] += s.scale * positions.data()[j];
    }
  }

  void scores(std::int64_t h) const {
    const auto& [s, in, out, sequence, tile] = composing;
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const detail::QueryScores at{sequence.b, h, i, e.low};
      float* row = tile.row(e, h, i);
      in.mixture == nullptr ? dot_products(at, row) : mixtures(at, row);
      if (in.attention.relative()) {
        add_positions(at, row);
      }
      std::fill(row + keys(), row + e.columns, 0.0F);
    }
  }

  void values(std::int64_t h, const float* inverse) const {
    const auto& [s, in, out, sequence, tile] = composing;
    const std::int64_t b = sequence.b, g = h / (s.heads / s.kv_heads);
    Buffer room;
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const RowsOut to = out.o.rows(b, h, i);
      const Strided<float> o = detail::workplace(to, 1, s.d_value, room);
      detail::vector_times_rows(tile.row(e, h, i), keys(), in.attention.v.rows(b, g, e.low), s.d_value, o.data);
      if (!in.post.present) {
        scaled_copy(o.data, inverse[i * s.heads + h], s.d_value, o.data);
      }
      detail::put_back(o, 1, s.d_value, to);
    }
  }
};

}  // namespace

void composed_attention_few_queries(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                                    const ForRanges& for_ranges) {
  detail::Tile tile(s, s.queries);
  detail::PackedSequence sequence;
  Buffer inverse(s.heads * s.queries);
  const detail::Composing composing{s, in, out, sequence, tile};
  const FewComposed few{composing, detail::extent_of(s, 0, s.queries)};
  const auto for_heads = [&](const auto& body) {
    for_ranges(s.heads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = begin; h < end; ++h) {
        body(h);
      }
    });
  };
  for (std::int64_t b = 0; b < s.batch; ++b) {
    sequence.pack(s, in, b);
    for_heads([&](std::int64_t h) { few.scores(h); });
    composing.block(few.e, inverse.data());
    for_heads([&](std::int64_t h) { few.values(h, inverse.data()); });
  }
}

}  // namespace headroom::kernels
