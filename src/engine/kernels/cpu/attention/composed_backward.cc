#include "composed_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::kMappedRows;
using detail::MappedRows;
using detail::PackedKeyFactors;
using detail::PackedSequence;
using detail::padded;
using detail::RawScoreGradients;
using detail::RawScores;
using detail::Tile;

// One thread's buffers; gradients of values grow with their rows as columns, as in attention_backward.cc.
struct ComposedWorkspace {
  ComposedWorkspace(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out)
      : raw(s, in, detail::composed_rows(s)),
        gradients(raw, out),
        width(detail::key_width(s)),
        scores(s, detail::composed_rows(s)),
        d(s, detail::composed_rows(s)),
        p(s, kMappedRows),
        mapped(s, kMappedRows),
        values(s.half, s.kv_heads, s.d_value, width),
        passing(s.half),
        d_values(s.heads * s.d_value * width),
        log_sums(s.heads * kMappedRows) {}
  RawScores raw;
  RawScoreGradients gradients;
  PackedSequence sequence;
  std::int64_t width, task = 0;  // of keys as columns; sequence * P + part
  Tile scores, d;                // of a block: scores, later composed probabilities; gradients of either
  Tile p, mapped;                // of a few rows: probabilities, before and after composing them
  Buffer pre_sums, post_sums;    // what the maps leave for their backward pass
  detail::KeptOperands values;   // [G, w, S padded]
  detail::PassingOperands passing;
  Buffer d_values;               // [H, w, S padded]
  Buffer d_pre_key, d_post_key;  // key sides, [F, S padded]
  Buffer log_sums;               // of a few rows, [H, rows]
  Buffer room;                   // of results that are rounded
};

void pack(const AttentionShape& s, const ComposedTensors& in, std::int64_t b, ComposedWorkspace& w) {
  w.sequence.pack(s, in, b);
  w.raw.pack(b);
  w.gradients.pack();
  for (std::int64_t g = 0; g < s.kv_heads; ++g) {
    w.values.set_columns(g, in.attention.v.rows(b, g), s.keys);
  }
}

void begin_task(const AttentionShape& s, const ComposedGradients& out, std::int64_t task, ComposedWorkspace& w) {
  w.task = task;
  if (out.attention.d_sink != nullptr) {
    std::fill_n(out.attention.d_sink + task * s.heads, s.heads, 0.0F);
  }
  w.gradients.begin(task);
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

  HeadSums kept(const HeadMap& map) const {
    sums.make_room(HeadSums::size(map, kMappedRows, keys.width));
    return {sums.data(), keys.width};
  }
  void map(const Extent& e, const MappedRows& m, const HeadRows& from, const HeadRows& to,
           const ComposedWorkspace& w) const {
    const HeadMap map = detail::map_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    map_heads(map, nullptr, from, to, m.columns, kept(map));
  }
  // Gradients of the mapped rows become those of `from`.
  void back(const Extent& e, const MappedRows& m, const HeadRows& from, const HeadRows& d,
            const ComposedWorkspace& w) const {
    const HeadMap map = detail::map_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    map_heads_backward(map, from, d, m.columns, kept(map), gradients(e.row + m.first, e.low, w));
  }
  // Where those of query row i's factors and of keys from `low` on go: laid out as map_of() reads the factors.
  HeadMapGradients gradients(std::int64_t i, std::int64_t low, const ComposedWorkspace& w) const {
    HeadMapGradients to;
    const std::int64_t m = s.heads / stage.groups;
    if (stage.fixed != nullptr) {
      to.fixed = out.fixed + w.task * stage.groups * m * m;
    }
    const detail::SideFactors query(out.query + (w.sequence.b * s.queries + i) * stage.query.factors(s.heads),
                                    stage.query, s.heads);
    to.u_query = query.u;
    to.w_query = query.w;
    to.gate_query = query.gate;
    const detail::SideFactors key(d_key.data() + low, stage.key, s.heads * keys.width);
    to.u_key = key.u;
    to.w_key = key.w;
    to.gate_key = key.gate;
    return to;
  }
};

// For a few rows: scores become composed probabilities, and gradients of these those of the scores.
void rows_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                   const MappedRows& m, ComposedWorkspace& w) {
  const PackedSequence& sequence = w.sequence;
  const Stage pre{s, in.pre, out.pre, sequence.pre, w.pre_sums, w.d_pre_key},
      post{s, in.post, out.post, sequence.post, w.post_sums, w.d_post_key};
  const Extent few{e.row + m.first, m.rows, e.low, m.columns};  // the small tiles' own
  const HeadRows scores = w.scores.heads(e, m.first, m.rows), d = w.d.heads(e, m.first, m.rows),
                 p = w.p.heads(few, 0, m.rows), mapped = w.mapped.heads(few, 0, m.rows);
  const auto for_rows = [&](const auto& body) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < m.rows; ++i) {
        body(h, i, w.p.row(few, h, i));
      }
    }
  };
  if (in.pre.present) {
    pre.map(e, m, scores, p, w);
  } else {
    detail::copy_rows(scores, s.heads, m.columns, p);
  }
  for_rows([&](std::int64_t h, std::int64_t i, float* row) {
    const ScoreRow seen = sequence.softmax_row(s, in, e, m.first + i, m.columns);
    float& log_sum = w.log_sums.data()[h * kMappedRows + i];
    if (s.queries < kFewQueries) {  // whose forward pass adds in another order: its sums would not fit these scores
      float sum = 0.0F;
      log_sum = detail::exp_row_of(in, seen, h, row, &sum);
      scaled_copy(row, sum > 0.0F ? 1.0F / sum : 0.0F, m.columns, row);
    } else {
      log_sum = out.attention.log_sum[(sequence.b * s.heads + h) * s.queries + few.row + i];
      probability_row(seen, log_sum, row);
    }
  });
  if (in.post.present) {
    post.map(e, m, p, mapped, w);
    post.back(e, m, p, d, w);
  }
  for_rows([&](std::int64_t h, std::int64_t i, const float* row) {
    float* d_row = w.d.row(e, h, m.first + i);
    if (out.attention.d_sink != nullptr) {
      const float share = detail::sink_share(in.attention.sink, h, w.log_sums.data()[h * kMappedRows + i]);
      out.attention.d_sink[w.task * s.heads + h] -= share * dot(row, d_row, m.columns);
    }
    softmax_backward_row(row, m.columns, 1.0F, d_row);
  });
  if (in.pre.present) {
    pre.back(e, m, scores, d, w);
  }
  detail::copy_rows(in.post.present ? mapped : p, s.heads, m.columns, scores);
  detail::clear_rows(scores, s.heads, m.columns, e.columns);
  detail::clear_rows(d, s.heads, m.columns, e.columns);
}

void block_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                    ComposedWorkspace& w) {
  const std::int64_t b = w.sequence.b, room = w.width * s.d_value, stride = Tile::row_stride(e);
  const auto d_o = [&](std::int64_t h) { return out.attention.d_o.rows(b, h, e.row); };
  for (std::int64_t h = 0; h < s.heads; ++h) {
    w.raw.fill(e, h, {w.scores.head(e, h), stride});
    detail::multiply({e.rows, e.columns, s.d_value}, w.passing.left(d_o(h), e.rows, s.d_value),
                     w.values[h / (s.heads / s.kv_heads)].from(0, e.low), {w.d.head(e, h), stride});
  }
  detail::for_mapped_rows(s, e, [&](const MappedRows& m) { rows_backward(s, in, out, e, m, w); });
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const detail::Left columns = w.passing.left_columns(d_o(h), e.rows, s.d_value);
    detail::multiply({s.d_value, e.columns, e.rows}, columns,
                     w.passing.right({w.scores.head(e, h), stride}, e.rows, e.columns),
                     {w.d_values.data() + h * room + e.low, w.width}, true);
    w.gradients.add(e, h, {w.d.head(e, h), stride});
  }
}

void unpack_key_side(const AttentionShape& s, const ComposeStage& stage, const Buffer& from, std::int64_t width,
                     std::int64_t task, float* to) {
  const std::int64_t n = stage.key.factors(s.heads);
  transpose({from.data(), width}, n, s.keys, {to + task * s.keys * n, n});
}

}  // namespace

void composed_attention_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out,
                                 std::int64_t begin, std::int64_t end) {
  ComposedWorkspace w(s, in, out);
  const std::int64_t rows = detail::composed_rows(s), blocks = composed_blocks(s);
  for (std::int64_t task = begin; task < end; ++task) {
    if (const std::int64_t b = task / out.parts; w.sequence.b != b) {
      pack(s, in, b, w);
    }
    begin_task(s, out, task, w);
    // Blocks are dealt to and fro: late rows of a causal sequence have more to do than early ones.
    const std::int64_t part = task % out.parts;
    for (std::int64_t first = 0; first < blocks; first += out.parts) {
      const std::int64_t block = first + (first / out.parts % 2 == 0 ? part : out.parts - 1 - part);
      if (block < blocks) {
        block_backward(s, in, out, detail::extent_of(s, block * rows, rows), w);
      }
    }
    w.gradients.finish();
    for (std::int64_t h = 0; h < s.heads; ++h) {
      detail::put_transposed({w.d_values.data() + h * w.width * s.d_value, w.width}, s.d_value, s.keys,
                             out.attention.d_v.rows(task, h), w.room);
    }
    if (in.pre.present) {
      unpack_key_side(s, in.pre, w.d_pre_key, w.sequence.pre.width, task, out.pre.key);
    }
    if (in.post.present) {
      unpack_key_side(s, in.post, w.d_post_key, w.sequence.post.width, task, out.post.key);
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
