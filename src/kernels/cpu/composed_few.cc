#include "composed_block.h"
#include "headroom/kernels/cpu/vector_product.h"

namespace headroom::kernels {
namespace {

// Few queries of one sequence: every key, value and offset is read where it lies.
template <class T>
struct FewComposed {
  const detail::Composing<T>& composing;
  const detail::Extent e;

  // Keys that the extent reaches.
  std::int64_t keys() const { return std::min(e.columns, composing.s.keys - e.low); }

  void dot_products(const detail::QueryScores& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    const HeadsView<const float>& q = in.attention.q;
    vector_times_columns(q.at(at.b, at.h) + at.query * q.row, s.d_head,
                         detail::rows_of(in.attention.k, at.b, at.group(s), at.low), 0, keys(), row);
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
    const HeadsView<const float>& q = in.attention.q_position;
    const std::int64_t first = e.first_offset(s) + e.shift(at.query), there = std::min(keys(), s.offsets() - first);
    Buffer positions(there);
    vector_times_columns(q.at(at.b, at.h) + at.query * q.row, s.d_head, detail::rows_of(in.attention.r, 0, at.h, first),
                         0, there, positions.data());
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
      if (in.attention.q_position.data != nullptr) {
        add_positions(at, row);
      }
      std::fill(row + keys(), row + e.columns, 0.0F);
    }
  }

  void values(std::int64_t h, const float* inverse) const {
    const auto& [s, in, out, sequence, tile] = composing;
    const std::int64_t b = sequence.b, g = h / (s.heads / s.kv_heads);
    for (std::int64_t i = 0; i < e.rows; ++i) {
      float* o = out.o.at(b, h) + i * out.o.row;
      vector_times_rows(tile.row(e, h, i), keys(), detail::rows_of(in.attention.v, b, g, e.low), 0, s.d_head, o);
      if (!in.post.present) {
        scaled_copy(o, inverse[i * s.heads + h], s.d_head, o);
      }
    }
  }
};

}  // namespace

template <class T>
void composed_attention_few_queries(const AttentionShape& s, const ComposedTensorsOf<T>& in, const AttentionResult& out,
                                    const ForRanges& for_ranges) {
  detail::Tile tile(s, s.queries);
  detail::PackedSequence sequence;
  Buffer inverse(s.heads * s.queries);
  const detail::Composing<T> composing{s, in, out, sequence, tile};
  const FewComposed<T> few{composing, detail::extent_of(s, 0, s.queries)};
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

template void composed_attention_few_queries(const AttentionShape&, const ComposedTensorsOf<float>&,
                                             const AttentionResult&, const ForRanges&);
template void composed_attention_few_queries(const AttentionShape&, const ComposedTensorsOf<BFloat16>&,
                                             const AttentionResult&, const ForRanges&);

}  // namespace headroom::kernels
