#include "composed_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::kMixedRows;
using detail::MixedRows;
using detail::PackedKeyFactors;
using detail::PackedSequence;
using detail::padded;
using detail::Tile;

// One thread's buffers; gradients of keys and values grow with their rows as columns, as in attention_backward.cc.
struct ComposedWorkspace {
  explicit ComposedWorkspace(const AttentionShape& s)
      : scores(s, detail::composed_rows(s)), d(s, detail::composed_rows(s)), p(s, kMixedRows), mixed(s, kMixedRows) {
    const std::int64_t width = padded(s.keys) + detail::kColumnStep;
    keys.make_room(s.kv_heads * width * detail::row_width(s.d_head));
    values.make_room(s.kv_heads * width * s.d_head);
    d_keys.make_room(s.heads * s.d_head * width);
    d_values.make_room(d_keys.size());
    rows.make_room(s.d_head * detail::composed_rows(s));
  }
  PackedSequence sequence;
  std::int64_t task = 0;         // part * B + sequence
  Tile scores, d;                // of a block: scores, later composed probabilities; gradients of either
  Tile p, mixed;                 // of a few rows: probabilities, before and after composing them
  Buffer pre_sums, post_sums;    // what mixing leaves for its way back
  Buffer keys, values;           // [G, S padded, e] times the scale, [G, e, S padded]
  Buffer d_keys, d_values;       // [H, e, S padded]
  Buffer d_pre_key, d_post_key;  // key sides, [F, S padded]
  Buffer rows;                   // a block of q or d_o with rows as columns
};

void pack(const AttentionShape& s, const ComposedTensors& in, std::int64_t b, ComposedWorkspace& w) {
  w.sequence.pack(s, in, b);
  const std::int64_t width = w.sequence.key_width, room = width * detail::row_width(s.d_head);
  const HeadsView<const float>&k = in.attention.k, &v = in.attention.v;
  for (std::int64_t g = 0; g < s.kv_heads; ++g) {
    detail::to_rows(k.at(b, g), k.row, s.keys, s.d_head, width, w.keys.data() + g * room);
    detail::to_columns(v.at(b, g), v.row, s.keys, s.d_head, width, w.values.data() + g * width * s.d_head);
  }
  scaled_copy(w.keys.data(), s.scale, s.kv_heads * room, w.keys.data());
  w.d_keys.fill(0.0F);
  w.d_values.fill(0.0F);
  w.d_pre_key.make_room(w.sequence.pre.data.size());
  w.d_pre_key.fill(0.0F);
  w.d_post_key.make_room(w.sequence.post.data.size());
  w.d_post_key.fill(0.0F);
}

// One stage on its way there and back for a few rows.
struct Stage {
  const AttentionShape& s;
  const ComposeStage& stage;
  const ComposeStageGradients& out;
  const PackedKeyFactors& keys;
  Buffer &sums, &d_key;

  HeadSums kept(const HeadMix& mix) const {
    sums.make_room(HeadSums::size(mix, kMixedRows, keys.width));
    return {sums.data(), keys.width};
  }
  void mix(const Extent& e, const MixedRows& m, const HeadRows& from, const HeadRows& to,
           const ComposedWorkspace& w) const {
    const HeadMix mix = detail::mix_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    mix_heads(mix, nullptr, from, to, m.columns, kept(mix));
  }
  // Gradients of the mixed rows become those of `from`.
  void back(const Extent& e, const MixedRows& m, const HeadRows& from, const HeadRows& d,
            const ComposedWorkspace& w) const {
    const HeadMix mix = detail::mix_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    mix_heads_backward(mix, from, d, m.columns, kept(mix), gradients(e.row + m.first, e.low, w));
  }
  // Where those of query row i's factors and of keys from `low` on go: laid out as mix_of() reads the factors.
  HeadMixGradients gradients(std::int64_t i, std::int64_t low, const ComposedWorkspace& w) const {
    HeadMixGradients to;
    const std::int64_t uw = stage.rank * s.heads, m = s.heads / stage.groups;
    if (stage.fixed != nullptr) {
      to.fixed = out.fixed + w.task * stage.groups * m * m;
    }
    const detail::SideFactors query(out.query + (w.sequence.b * s.queries + i) * stage.factors(stage.query, s.heads),
                                    stage.query, uw);
    to.u_query = query.u;
    to.w_query = query.w;
    to.gate_query = query.gate;
    const detail::SideFactors key(d_key.data() + low, stage.key, uw * keys.width);
    to.u_key = key.u;
    to.w_key = key.w;
    to.gate_key = key.gate;
    return to;
  }
};

// For a few rows: scores become composed probabilities, and gradients of these those of the scores.
void rows_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                   const MixedRows& m, ComposedWorkspace& w) {
  const PackedSequence& sequence = w.sequence;
  const Stage pre{s, in.pre, out.pre, sequence.pre, w.pre_sums, w.d_pre_key},
      post{s, in.post, out.post, sequence.post, w.post_sums, w.d_post_key};
  const Extent few{e.row + m.first, m.rows, e.low, m.columns};  // the small tiles' own
  const HeadRows scores = w.scores.heads(e, m.first, m.rows), d = w.d.heads(e, m.first, m.rows),
                 p = w.p.heads(few, 0, m.rows), mixed = w.mixed.heads(few, 0, m.rows);
  const auto for_rows = [&](const auto& body) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < m.rows; ++i) {
        body(h, i, w.p.row(few, h, i));
      }
    }
  };
  if (in.pre.present) {
    pre.mix(e, m, scores, p, w);
  } else {
    detail::copy_rows(scores, s.heads, m.columns, p);
  }
  for_rows([&](std::int64_t h, std::int64_t i, float* row) {
    const ScoreRow seen = sequence.softmax_row(s, in, e, m.first + i, m.columns);
    if (s.queries < kFewQueries) {  // whose forward pass adds in another order: its sums would not fit these scores
      float sum = 0.0F;
      exp_row(seen, row, &sum);
      scaled_copy(row, sum > 0.0F ? 1.0F / sum : 0.0F, m.columns, row);
    } else {
      probability_row(seen, out.attention.log_sum[(sequence.b * s.heads + h) * s.queries + few.row + i], row);
    }
  });
  if (in.post.present) {
    post.mix(e, m, p, mixed, w);
    post.back(e, m, p, d, w);
  }
  for_rows([&](std::int64_t h, std::int64_t i, const float* row) {
    softmax_backward_row(row, m.columns, 1.0F, w.d.row(e, h, m.first + i));
  });
  if (in.pre.present) {
    pre.back(e, m, scores, d, w);
  }
  detail::copy_rows(in.post.present ? mixed : p, s.heads, m.columns, scores);
  detail::clear_rows(scores, s.heads, m.columns, e.columns);
  detail::clear_rows(d, s.heads, m.columns, e.columns);
}

// sum [e, columns] += factor rows^T [e, n] block [n, columns]
void add_transposed(const AttentionShape& s, const Extent& e, Strided<const float> rows, float factor,
                    const float* block, float* sum, ComposedWorkspace& w) {
  detail::to_columns(rows.data, rows.stride, e.rows, s.d_head, e.rows, w.rows.data());
  scaled_copy(w.rows.data(), factor, s.d_head * e.rows, w.rows.data());
  tile_product({s.d_head, e.columns, e.rows, e.rows, Tile::row_stride(e), w.sequence.key_width, true}, w.rows.data(),
               block, sum);
}

void block_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                    ComposedWorkspace& w) {
  const PackedSequence& sequence = w.sequence;
  const std::int64_t b = sequence.b, width = sequence.key_width, room = width * s.d_head;
  const std::int64_t row_width = detail::row_width(s.d_head);
  const auto group = [&](std::int64_t h) { return h / (s.heads / s.kv_heads); };
  const HeadsView<const float>&q = in.attention.q, &d_o = out.attention.d_o;
  const HeadsView<float>& d_q = out.attention.d_q;
  sequence.raw_scores(s, in, e, w.scores);
  for (std::int64_t h = 0; h < s.heads; ++h) {
    tile_product({e.rows, e.columns, s.d_head, d_o.row, width, Tile::row_stride(e)}, d_o.at(b, h) + e.row * d_o.row,
                 w.values.data() + group(h) * room + e.low, w.d.head(e, h));
  }
  detail::for_mixed_rows(s, e, [&](const MixedRows& m) { rows_backward(s, in, out, e, m, w); });
  for (std::int64_t h = 0; h < s.heads; ++h) {
    add_transposed(s, e, {d_o.at(b, h) + e.row * d_o.row, d_o.row}, 1.0F, w.scores.head(e, h),
                   w.d_values.data() + h * room + e.low, w);
    tile_product({e.rows, s.d_head, e.columns, Tile::row_stride(e), row_width, d_q.row}, w.d.head(e, h),
                 w.keys.data() + (group(h) * width + e.low) * row_width, d_q.at(b, h) + e.row * d_q.row);
    add_transposed(s, e, {q.at(b, h) + e.row * q.row, q.row}, s.scale, w.d.head(e, h),
                   w.d_keys.data() + h * room + e.low, w);
  }
}

void unpack_key_side(const AttentionShape& s, const ComposeStage& stage, const Buffer& from, std::int64_t width,
                     std::int64_t task, float* to) {
  const std::int64_t n = stage.factors(stage.key, s.heads);
  transpose({from.data(), width}, n, s.keys, {to + task * s.keys * n, n});
}

}  // namespace

void composed_attention_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out,
                                 std::int64_t begin, std::int64_t end) {
  ComposedWorkspace w(s);
  const HeadsView<float>&d_k = out.attention.d_k, &d_v = out.attention.d_v;
  const std::int64_t rows = detail::composed_rows(s);
  for (w.task = begin; w.task < end; ++w.task) {
    pack(s, in, w.task % s.batch, w);
    for (std::int64_t row = w.task / s.batch * rows; row < s.queries; row += out.parts * rows) {
      block_backward(s, in, out, detail::extent_of(s, row, rows), w);
    }
    const std::int64_t width = w.sequence.key_width, room = width * s.d_head;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      transpose({w.d_keys.data() + h * room, width}, s.d_head, s.keys, {d_k.at(w.task, h), d_k.row});
      transpose({w.d_values.data() + h * room, width}, s.d_head, s.keys, {d_v.at(w.task, h), d_v.row});
    }
    if (in.pre.present) {
      unpack_key_side(s, in.pre, w.d_pre_key, w.sequence.pre.width, w.task, out.pre.key);
    }
    if (in.post.present) {
      unpack_key_side(s, in.post, w.d_post_key, w.sequence.post.width, w.task, out.post.key);
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
