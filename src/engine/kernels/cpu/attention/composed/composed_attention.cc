#include "composed_block.h"

#include "foundation/core/ceil_div.h"

namespace headroom::kernels {
namespace {

// values: [G, S padded, w padded].
void pack_values(const AttentionShape& s, const AttentionTensors& in, std::int64_t b, PackedOperands& values) {
  for (std::int64_t g = 0; g < s.kv_heads; ++g) {
    values.set_rows(g, in.v.rows(b, g), s.keys, s.d_value);
  }
}

struct Forward : BlockComposer {
  void run(const Extent& e, RawScores& scores, const PackedOperands& values, ScratchOperands& scratch) const {
    const std::int64_t b = sequence.b;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      scores.fill(e, h, {tile.head(e, h), Tile::row_stride(e)});
    }
    Buffer inverse(s.heads * e.rows), staging;
    block(e, inverse.data());
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const RowsOut to = out.o.rows(b, h, e.row);
      const Strided<float> o = staged_wide_rows(to, e.rows, s.d_value, staging);
      const Left a = scratch.left({tile.head(e, h), Tile::row_stride(e)}, e.rows, e.columns);
      multiply({e.rows, row_width(s.d_value), e.columns}, a, values[h / (s.heads / s.kv_heads)].from(e.low, 0), o);
      for (std::int64_t i = 0; !in.post.present && i < e.rows; ++i) {
        scaled_copy(o.data + i * o.stride, inverse.data()[i * s.heads + h], s.d_value, o.data + i * o.stride);
      }
      store_rows(o, e.rows, s.d_value, to);
    }
  }
};

}  // namespace

std::int64_t composed_blocks(const AttentionShape& s) {
  const std::int64_t rows = composed_rows(s);
  return ceil_div(s.queries, rows);
}

void composed_attention_forward(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                                std::int64_t begin, std::int64_t step) {
  Tile tile(s, composed_rows(s));
  PackedSequence sequence;
  PackedOperands values(s.bf16, s.kv_heads, padded(s.keys), row_width(s.d_value));
  ScratchOperands scratch(s.bf16);
  const std::int64_t blocks = composed_blocks(s), rows = composed_rows(s);
  RawScores scores(s, in, rows);
  const Forward forward{{s, in, out, sequence, tile}};
  for (std::int64_t task = begin; task < s.batch * blocks; task += step) {
    const std::int64_t b = task / blocks, row = task % blocks * rows;
    if (sequence.b != b) {
      sequence.pack(s, in, b);
      scores.pack(b);
      pack_values(s, in.attention, b, values);
    }
    forward.run(extent_of(s, row, rows), scores, values, scratch);
  }
  tile_product_done();
}

namespace {

// The decode path of one sequence, with unpacked keys, values and offsets.
struct DecodeComposer {
  const BlockComposer& composing;
  const Extent e;

  // Number of keys in the extent.
  std::int64_t keys() const { return std::min(e.columns, composing.s.keys - e.low); }

  void dot_products(const QueryIndex& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    Buffer widened;
    gemv_transposed(as_float32(in.attention.q.rows(at.b, at.h, at.query), 1, s.d_head, widened).data, s.d_head,
                    in.attention.k.rows(at.b, at.group(s), at.low), keys(), row);
    scaled_copy(row, s.scale, keys(), row);
  }

  void mixtures(const QueryIndex& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    Buffer products(static_cast<std::int64_t>(in.mixture->keys.size()) * e.columns);
    multiply_unpacked(s, *in.mixture, at, keys(), {products.data(), e.columns});
    mixture_content_row(key_columns(s, e), mixture_row(s, *in.mixture, at, {products.data(), e.columns}), row);
  }

  void add_positions(const QueryIndex& at, float* row) const {
    const auto& [s, in, out, sequence, tile] = composing;
    const std::int64_t first = e.first_offset(s) + e.shift(at.query), there = std::min(keys(), s.offsets() - first);
    Buffer positions(there), widened;
    const Strided<const float> q = as_float32(in.attention.q_position.rows(at.b, at.h, at.query), 1, s.d_head, widened);
    gemv_transposed(q.data, s.d_head, in.attention.r.rows(0, at.h, first), there, positions.data());
    for (std::int64_t j = 0; j < there; ++j) {
      row[j] += s.scale * positions.data()[j];
    }
  }

  void scores(std::int64_t h) const {
    const auto& [s, in, out, sequence, tile] = composing;
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const QueryIndex at{sequence.b, h, i, e.low};
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
    Buffer staging;
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const RowsOut to = out.o.rows(b, h, i);
      const Strided<float> o = staged_rows(to, 1, s.d_value, staging);
      gemv(tile.row(e, h, i), keys(), in.attention.v.rows(b, g, e.low), s.d_value, o.data);
      if (!in.post.present) {
        scaled_copy(o.data, inverse[i * s.heads + h], s.d_value, o.data);
      }
      store_rows(o, 1, s.d_value, to);
    }
  }
};

}  // namespace

void composed_attention_decode(const AttentionShape& s, const ComposedTensors& in, const AttentionResult& out,
                               const ForRanges& for_ranges) {
  Tile tile(s, s.queries);
  PackedSequence sequence;
  Buffer inverse(s.heads * s.queries);
  const BlockComposer composing{s, in, out, sequence, tile};
  const DecodeComposer few{composing, extent_of(s, 0, s.queries)};
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

namespace {

// Buffers of one thread. Gradients of values are accumulated transposed, as in attention.cc.
struct ComposedWorkspace {
  ComposedWorkspace(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out)
      : raw(s, in, composed_rows(s)),
        gradients(raw, out),
        width(kernels::key_width(s)),
        scores(s, composed_rows(s)),
        d(s, composed_rows(s)),
        p(s, kMappedRows),
        mapped(s, kMappedRows),
        values(s.bf16, s.kv_heads, s.d_value, width),
        scratch(s.bf16),
        d_values(s.heads * s.d_value * width),
        log_sums(s.heads * kMappedRows) {}
  RawScores raw;
  RawScoreGradients gradients;
  PackedSequence sequence;
  std::int64_t width, task = 0;  // columns of transposed keys; sequence * P + part
  Tile scores, d;                // scores of a block, later composed probabilities; gradient of either
  Tile p, mapped;                // for a few rows: probabilities before and after composition
  Buffer pre_sums, post_sums;    // HeadSums of the two stages
  PackedOperands values;         // [G, w, S padded]
  ScratchOperands scratch;
  Buffer d_values;               // [H, w, S padded]
  Buffer d_pre_key, d_post_key;  // key sides, [F, S padded]
  Buffer log_sums;               // of a few rows, [H, rows]
  Buffer staging;                // see staged_rows()
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
  w.d_pre_key.reserve(w.sequence.pre.data.size());
  w.d_pre_key.fill(0.0F);
  w.d_post_key.reserve(w.sequence.post.data.size());
  w.d_post_key.fill(0.0F);
}

// Forward and backward pass of one stage's head map for a few rows.
struct Stage {
  const AttentionShape& s;
  const ComposeStage& stage;
  const ComposeStageGradients& out;
  const PackedKeyFactors& keys;
  Buffer &sums, &d_key;

  HeadSums saved(const HeadMap& map) const {
    sums.reserve(HeadSums::size(map, kMappedRows, keys.width));
    return {sums.data(), keys.width};
  }
  void map(const Extent& e, const MappedRows& m, const HeadRows& from, const HeadRows& to,
           const ComposedWorkspace& w) const {
    const HeadMap map = map_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    map_heads(map, nullptr, from, to, m.columns, saved(map));
  }
  // Replaces the gradient of the mapped rows by the gradient of `from`.
  void back(const Extent& e, const MappedRows& m, const HeadRows& from, const HeadRows& d,
            const ComposedWorkspace& w) const {
    const HeadMap map = map_of(s, stage, keys, w.sequence.b, e.row + m.first, e.low);
    map_heads_backward(map, from, d, m.columns, saved(map), gradients(e.row + m.first, e.low, w));
  }
  // Gradient destinations for the factors of query row i and of the keys from `low` on, laid out as in map_of().
  HeadMapGradients gradients(std::int64_t i, std::int64_t low, const ComposedWorkspace& w) const {
    HeadMapGradients to;
    const std::int64_t m = s.heads / stage.groups;
    if (stage.fixed != nullptr) {
      to.fixed = out.fixed + w.task * stage.groups * m * m;
    }
    const SideFactors query(out.query + (w.sequence.b * s.queries + i) * stage.query.factors(s.heads), stage.query,
                            s.heads);
    to.u_query = query.u;
    to.w_query = query.w;
    to.gate_query = query.gate;
    const SideFactors key(d_key.data() + low, stage.key, s.heads * keys.width);
    to.u_key = key.u;
    to.w_key = key.w;
    to.gate_key = key.gate;
    return to;
  }
};

// Replaces the scores of a few rows by composed probabilities, and the probabilities' gradient by the scores' gradient.
void rows_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                   const MappedRows& m, ComposedWorkspace& w) {
  const PackedSequence& sequence = w.sequence;
  const Stage pre{s, in.pre, out.pre, sequence.pre, w.pre_sums, w.d_pre_key},
      post{s, in.post, out.post, sequence.post, w.post_sums, w.d_post_key};
  const Extent few{e.row + m.first, m.rows, e.low, m.columns};  // extent of p and mapped
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
    copy_rows(scores, s.heads, m.columns, p);
  }
  for_rows([&](std::int64_t h, std::int64_t i, float* row) {
    const ScoreRow seen = sequence.softmax_row(s, in, e, m.first + i, m.columns);
    float& log_sum = w.log_sums.data()[h * kMappedRows + i];
    // The decode path sums in another order, so its log_sum does not match these scores.
    if (s.queries < kMinBlockedQueries) {
      float sum = 0.0F;
      log_sum = exp_row_of(in, seen, h, row, &sum);
      scaled_copy(row, inverse_of(sum), m.columns, row);
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
      const float share = sink_probability(in.attention.sink, h, w.log_sums.data()[h * kMappedRows + i]);
      out.attention.d_sink[w.task * s.heads + h] -= share * dot(row, d_row, m.columns);
    }
    softmax_backward_row(row, m.columns, 1.0F, d_row);
  });
  if (in.pre.present) {
    pre.back(e, m, scores, d, w);
  }
  copy_rows(in.post.present ? mapped : p, s.heads, m.columns, scores);
  clear_rows(scores, s.heads, m.columns, e.columns);
  clear_rows(d, s.heads, m.columns, e.columns);
}

void block_backward(const AttentionShape& s, const ComposedTensors& in, const ComposedGradients& out, const Extent& e,
                    ComposedWorkspace& w) {
  const std::int64_t b = w.sequence.b, size = w.width * s.d_value, stride = Tile::row_stride(e);
  const auto d_o = [&](std::int64_t h) { return out.attention.d_o.rows(b, h, e.row); };
  for (std::int64_t h = 0; h < s.heads; ++h) {
    w.raw.fill(e, h, {w.scores.head(e, h), stride});
    multiply({e.rows, e.columns, s.d_value}, w.scratch.left(d_o(h), e.rows, s.d_value),
             w.values[h / (s.heads / s.kv_heads)].from(0, e.low), {w.d.head(e, h), stride});
  }
  for_mapped_rows(s, e, [&](const MappedRows& m) { rows_backward(s, in, out, e, m, w); });
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const Left columns = w.scratch.left_columns(d_o(h), e.rows, s.d_value);
    multiply({s.d_value, e.columns, e.rows}, columns, w.scratch.right({w.scores.head(e, h), stride}, e.rows, e.columns),
             {w.d_values.data() + h * size + e.low, w.width}, true);
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
  const std::int64_t rows = composed_rows(s), blocks = composed_blocks(s);
  for (std::int64_t task = begin; task < end; ++task) {
    if (const std::int64_t b = task / out.parts; w.sequence.b != b) {
      pack(s, in, b, w);
    }
    begin_task(s, out, task, w);
    // Parts take blocks in alternating order, for balance: later rows of a causal sequence see more keys.
    const std::int64_t part = task % out.parts;
    for (std::int64_t first = 0; first < blocks; first += out.parts) {
      const std::int64_t block = first + (first / out.parts % 2 == 0 ? part : out.parts - 1 - part);
      if (block < blocks) {
        block_backward(s, in, out, extent_of(s, block * rows, rows), w);
      }
    }
    w.gradients.finish();
    for (std::int64_t h = 0; h < s.heads; ++h) {
      store_transposed({w.d_values.data() + h * w.width * s.d_value, w.width}, s.d_value, s.keys,
                       out.attention.d_v.rows(task, h), w.staging);
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
