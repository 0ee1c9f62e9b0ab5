#include <limits>
#include <optional>

#include "attention_block.h"
#include "formula_rows.h"

namespace headroom::kernels {
namespace {

std::optional<FormulaRows> formula_of(const AttentionShape& s, const AttentionTensors& in, bool backward) {
  return in.formula == nullptr ? std::nullopt : std::optional<FormulaRows>(std::in_place, s, *in.formula, backward);
}

ScoreBlock block_of(const Extent& e, std::optional<FormulaRows>& formula) {
  return formula ? formula->start_block(e) : ScoreBlock{e, {e}};
}

// sums [rows, n] = scores b, over the columns of all runs; b [keys, n]
void sum_runs(const ScoreBlock& block, std::int64_t n, const Left& scores, const Right& b, Strided<float> sums) {
  for (const Extent& run : block.runs) {
    multiply_scores(run, n, scores, b.from(run.low, 0), sums, &run != block.runs.data());
  }
  for (std::int64_t i = 0; block.runs.empty() && i < block.all.rows; ++i) {
    std::fill_n(sums.data + i * sums.stride, n, 0.0F);
  }
}

}  // namespace

void attention_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t most = padded(s.keys);
  Buffer scores(kBlockRows * longest_score_stride(s));
  PackedOperands values(s.bf16, 1, most, row_width(s.d_value));  // [S padded, w]
  Buffer positions(in.relative() ? kBlockRows * (most + 2 * kColumnStep) : 0);
  Buffer staging;
  PackedHead head(s, in.relative());
  std::optional<FormulaRows> formula = formula_of(s, in, false);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
    head.pack(s, in, b, h);
    values.set_rows(0, in.v.rows(b, g), s.keys, s.d_value);
    if (formula) {
      formula->start(b, h);
    }
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      const ScoreBlock block = block_of(extent_of(s, row), formula);
      const Extent& e = block.all;
      head.scores(s, in, block, scores.data(), positions.data());
      float sums[kBlockRows];
      float* log_sum = out.log_sum + task * s.queries + row;
      for (std::int64_t i = 0; i < e.rows; ++i) {
        float* row_scores = scores.data() + i * e.stride();
        log_sum[i] = formula ? formula->weigh(i, in.key_bias, row_scores, &sums[i])
                             : exp_row(score_row(s, in, e, b, i, positions.data()), row_scores, &sums[i]);
        add_sink(in.sink, h, &log_sum[i], &sums[i]);
      }
      const RowsOut to = out.o.rows(b, h, row);
      const Strided<float> o = staged_wide_rows(to, e.rows, s.d_value, staging);
      const Left p = head.scratch.left({scores.data(), e.stride()}, e.rows, e.columns);
      sum_runs(block, row_width(s.d_value), p, values[0], o);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        float* o_i = o.data + i * o.stride;
        scaled_copy(o_i, inverse_of(sums[i]), s.d_value, o_i);
      }
      store_rows(o, e.rows, s.d_value, to);
    }
  }
  tile_product_done();
}

namespace {

struct DecodeBuffers {
  Buffer scores, positions, q, o;
  std::optional<FormulaRows> formula;
};

// Computes one query, with unpacked keys and values.
void query_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out, std::int64_t task,
                   std::int64_t row, DecodeBuffers& buffers) {
  auto& [scores, positions, widened, result, formula] = buffers;
  const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
  const Extent e = extent_of(s, row, 1);
  const std::int64_t n = e.visible_high(s, 0);
  const RowsOut to = out.o.rows(b, h, row);
  const Strided<float> o = staged_rows(to, 1, s.d_value, result);
  float& log_sum = out.log_sum[task * s.queries + row];
  if (n <= 0) {
    std::fill_n(o.data, s.d_value, 0.0F);
    store_rows(o, 1, s.d_value, to);
    log_sum = std::numeric_limits<float>::infinity();
    return;
  }
  block_of(e, formula);
  const float* q = as_float32(in.q.rows(b, h, row), 1, s.d_head, widened).data;
  gemv_transposed(q, s.d_head, in.k.rows(b, g, e.low), n, scores.data());
  if (in.relative()) {
    q = as_float32(in.q_position.rows(b, h, row), 1, s.d_head, widened).data;
    gemv_transposed(q, s.d_head, in.r.rows(0, h, e.first_offset(s)), n, positions.data());
  }
  float sum = 0.0F;
  log_sum = formula ? formula->weigh(0, in.key_bias, scores.data(), &sum)
                    : exp_row(score_row(s, in, e, b, 0, positions.data()), scores.data(), &sum);
  add_sink(in.sink, h, &log_sum, &sum);
  gemv(scores.data(), n, in.v.rows(b, g, e.low), s.d_value, o.data);
  scaled_copy(o.data, inverse_of(sum), s.d_value, o.data);
  store_rows(o, 1, s.d_value, to);
}

}  // namespace

void attention_decode(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                      std::int64_t begin, std::int64_t end) {
  DecodeBuffers buffers{.formula = formula_of(s, in, false)};
  buffers.scores.reserve(padded(s.keys));
  buffers.positions.reserve(in.relative() ? padded(s.keys) : 0);
  for (std::int64_t task = begin; task < end; ++task) {
    if (buffers.formula) {
      buffers.formula->start(task / s.heads, task % s.heads);
    }
    for (std::int64_t row = 0; row < s.queries; ++row) {
      query_forward(s, in, out, task, row, buffers);
    }
  }
}

namespace {

// Buffers of one thread. Gradients of keys, values and offsets are accumulated transposed, so that no matrix
// multiplication needs another transposition.
struct AttentionWorkspace {
  AttentionWorkspace(const AttentionShape& s, bool relative)
      : key_width(kernels::key_width(s)),
        offset_width(kernels::offset_width(s)),
        head(s, relative),
        keys(s.bf16, 1, key_width, row_width(s.d_head)),
        offsets(s.bf16, relative ? 1 : 0, offset_width + offset_width % 2, row_width(s.d_head)),
        values(s.bf16, 1, s.d_value, key_width) {
    scores.reserve(kBlockRows * longest_score_stride(s));
    d_scores.reserve(scores.size());
    d_keys.reserve(s.d_head * key_width);
    d_values.reserve(s.d_value * key_width);
    if (relative) {
      positions.reserve(kBlockRows * (padded(s.keys) + 2 * kColumnStep));
      d_offsets.reserve(s.d_head * offset_width);
    }
  }
  std::int64_t key_width, offset_width;
  PackedHead head;
  Buffer scores, d_scores;             // [rows, columns]: p and its gradient
  Buffer positions;                    // [rows, offset columns]: position scores, then their gradient
  PackedOperands keys, offsets;        // [S padded, e], [C padded, e]
  PackedOperands values;               // [w, S padded]
  Buffer d_keys, d_values, d_offsets;  // [e, w or e, S or C padded]
  Buffer staging;                      // see staged_wide_rows()
};

void pack(const AttentionShape& s, const AttentionTensors& in, std::int64_t b, std::int64_t h, AttentionWorkspace& w) {
  const std::int64_t g = h / (s.heads / s.kv_heads);
  w.head.pack(s, in, b, h);
  w.keys.set_rows(0, in.k.rows(b, g), s.keys, s.d_head);
  w.values.set_columns(0, in.v.rows(b, g), s.keys);
  w.d_keys.fill(0.0F);
  w.d_values.fill(0.0F);
  if (in.relative()) {
    w.offsets.set_rows(0, in.r.rows(0, h), s.offsets(), s.d_head);
    w.d_offsets.fill(0.0F);
  }
}

void position_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                       const Extent& e, const OffsetGradients& d, AttentionWorkspace& w) {
  const std::int64_t b = w.head.b, h = w.head.h;
  const RowsOut to = out.d_q_position.rows(b, h, e.row);
  ScratchOperands& scratch = w.head.scratch;
  const Strided<float> d_q = staged_wide_rows(to, e.rows, s.d_head, w.staging);
  multiply({e.rows, row_width(s.d_head), d.n}, d.rows, w.offsets[0].from(d.first, 0), d_q);
  store_rows(d_q, e.rows, s.d_head, to);
  multiply({s.d_head, d.n, e.rows}, scratch.left_columns(in.q_position.rows(b, h, e.row), e.rows, s.d_head),
           scratch.right(d.rows, e.rows, d.n), {w.d_offsets.data() + d.first, w.offset_width}, true);
}

void block_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                    const ScoreBlock& block, std::optional<FormulaRows>& formula, AttentionWorkspace& w) {
  const Extent& e = block.all;
  const std::int64_t b = w.head.b, h = w.head.h;
  const Rows d_o = out.d_o.rows(b, h, e.row), o = out.o.rows(b, h, e.row);
  const float* log_sum = out.log_sum + (b * s.heads + h) * s.queries + e.row;
  ScratchOperands& scratch = w.head.scratch;
  float deltas[kBlockRows];
  row_deltas(s, e, d_o, o, deltas);
  w.head.scores(s, in, block, w.scores.data(), w.positions.data());
  const Left d_o_rows = scratch.left(d_o, e.rows, s.d_value);
  for (const Extent& run : block.runs) {
    multiply_to_scores(run, s.d_value, d_o_rows, w.values[0].from(0, run.low), w.d_scores.data());
  }
  for (std::int64_t i = 0; i < e.rows; ++i) {
    float *p = w.scores.data() + i * e.stride(), *d_p = w.d_scores.data() + i * e.stride();
    if (formula) {
      formula->weigh_backward(i, in.key_bias, log_sum[i], deltas[i], p, d_p);
    } else {
      exp_row_backward(score_row(s, in, e, b, i, w.positions.data()), log_sum[i], deltas[i], p, d_p);
    }
  }
  for (std::int64_t i = 0; out.d_sink != nullptr && i < e.rows; ++i) {
    out.d_sink[b * s.heads + h] -= sink_probability(in.sink, h, log_sum[i]) * deltas[i];
  }
  // Converted once for all matrix multiplications below.
  const Left d = scratch.left({w.d_scores.data(), e.stride()}, e.rows, e.columns);
  std::optional<OffsetGradients> placed;
  if (in.relative()) {
    placed.emplace(s, e, d, w.positions);
  }
  const RowsOut to = out.d_q.rows(b, h, e.row);
  const Strided<float> d_q = staged_wide_rows(to, e.rows, s.d_head, w.staging);
  sum_runs(block, row_width(s.d_head), d, w.keys[0], d_q);
  store_rows(d_q, e.rows, s.d_head, to);
  const Right d_columns = scratch.right(d, e.rows, e.columns);  // the next left operand overwrites `d`
  const Left q = scratch.left_columns(in.q.rows(b, h, e.row), e.rows, s.d_head);
  for (const Extent& run : block.runs) {
    add_product_with_scores(run, s.d_head, q, d_columns, {w.d_keys.data() + run.low, w.key_width});
  }
  const Left d_o_columns = scratch.left_columns(d_o, e.rows, s.d_value);
  const Right p_columns = scratch.right({w.scores.data(), e.stride()}, e.rows, e.columns);
  for (const Extent& run : block.runs) {
    add_product_with_scores(run, s.d_value, d_o_columns, p_columns, {w.d_values.data() + run.low, w.key_width});
  }
  if (placed) {
    position_backward(s, in, out, e, *placed, w);
  }
}

}  // namespace

void attention_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end) {
  const bool relative = in.relative();
  AttentionWorkspace w(s, relative);
  std::optional<FormulaRows> formula = formula_of(s, in, true);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads;
    pack(s, in, b, h, w);
    if (out.d_sink != nullptr) {
      out.d_sink[task] = 0.0F;
    }
    if (formula) {
      formula->start(b, h);
    }
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      block_backward(s, in, out, block_of(extent_of(s, row), formula), formula, w);
    }
    if (formula) {
      formula->add_gradients(out.formula);
    }
    store_transposed({w.d_keys.data(), w.key_width}, s.d_head, s.keys, out.d_keys[0].rows(b, h), w.staging);
    store_transposed({w.d_values.data(), w.key_width}, s.d_value, s.keys, out.d_v.rows(b, h), w.staging);
    if (relative) {
      store_transposed({w.d_offsets.data(), w.offset_width}, s.d_head, s.offsets(), out.d_r.rows(b, h), w.staging);
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
