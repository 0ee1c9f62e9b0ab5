#include <optional>

#include "attention_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::kBlockRows;
using detail::kColumnStep;
using detail::Left;
using detail::multiply;
using detail::padded;
using detail::Right;
using detail::TileSize;
using detail::workplace;

// One thread's buffers. Gradients of keys, values and offsets grow with their rows as columns, so that every product
// reads its operands as they lie.
struct AttentionWorkspace {
  AttentionWorkspace(const AttentionShape& s, bool relative)
      : key_width(detail::key_width(s)),
        offset_width(detail::offset_width(s)),
        head(s, relative),
        keys(s.half, 1, key_width, detail::row_width(s.d_head)),
        offsets(s.half, relative ? 1 : 0, offset_width + offset_width % 2, detail::row_width(s.d_head)),
        values(s.half, 1, s.d_value, key_width) {
    scores.make_room(kBlockRows * padded(s.keys));
    d_scores.make_room(scores.size());
    d_keys.make_room(s.d_head * key_width);
    d_values.make_room(s.d_value * key_width);
    if (relative) {
      positions.make_room(kBlockRows * (padded(s.keys) + 2 * kColumnStep));
      d_offsets.make_room(s.d_head * offset_width);
    }
  }
  std::int64_t key_width, offset_width;
  detail::PackedHead head;
  Buffer scores, d_scores;             // [rows, columns]: p and its gradient
  Buffer positions;                    // [rows, offset columns]: position scores, then their gradient
  detail::KeptOperands keys, offsets;  // [S padded, e], [C padded, e]
  detail::KeptOperands values;         // [w, S padded]
  Buffer d_keys, d_values, d_offsets;  // [e, w or e, S or C padded]
  Buffer room;                         // of results that are rounded
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

// sum [width, columns] += from^T [width, rows] block [rows, columns].
void add_transposed(const TileSize& size, const Rows& from, const Right& block, Strided<float> sum,
                    AttentionWorkspace& w) {
  multiply(size, w.head.passing.left_columns(from, size.k, size.m), block, sum, true);
}

void position_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                       const Extent& e, const detail::OffsetGradients& d, AttentionWorkspace& w) {
  const std::int64_t b = w.head.b, h = w.head.h;
  const RowsOut to = out.d_q_position.rows(b, h, e.row);
  const Strided<float> d_q = workplace(to, e.rows, s.d_head, w.room);
  multiply({e.rows, s.d_head, d.n}, d.rows, w.offsets[0].from(d.first, 0), d_q);
  detail::put_back(d_q, e.rows, s.d_head, to);
  add_transposed({s.d_head, d.n, e.rows}, in.q_position.rows(b, h, e.row), w.head.passing.right(d.rows, e.rows, d.n),
                 {w.d_offsets.data() + d.first, w.offset_width}, w);
}

void block_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out, const Extent& e,
                    AttentionWorkspace& w) {
  const std::int64_t b = w.head.b, h = w.head.h;
  const Rows d_o = out.d_o.rows(b, h, e.row), o = out.o.rows(b, h, e.row);
  const float* log_sum = out.log_sum + (b * s.heads + h) * s.queries + e.row;
  detail::PassingOperands& passing = w.head.passing;
  float means[kBlockRows];
  detail::mean_gradients(s, e, d_o, o, means);
  w.head.scores(s, in, e, w.scores.data(), w.positions.data());
  multiply({e.rows, e.columns, s.d_value}, passing.left(d_o, e.rows, s.d_value), w.values[0].from(0, e.low),
           {w.d_scores.data(), e.columns});
  for (std::int64_t i = 0; i < e.rows; ++i) {
    exp_row_backward(detail::score_row(s, in, e, b, i, w.positions.data()), log_sum[i], means[i],
                     w.scores.data() + i * e.columns, w.d_scores.data() + i * e.columns);
  }
  for (std::int64_t i = 0; out.d_sink != nullptr && i < e.rows; ++i) {
    out.d_sink[b * s.heads + h] -= detail::sink_share(in.sink, h, log_sum[i]) * means[i];
  }
  // Rounded once, if at all, for all that it is multiplied with.
  const Left d = passing.left({w.d_scores.data(), e.columns}, e.rows, e.columns);
  std::optional<detail::OffsetGradients> placed;
  if (in.relative()) {
    placed.emplace(s, e, d, w.positions);
  }
  const RowsOut to = out.d_q.rows(b, h, e.row);
  const Strided<float> d_q = workplace(to, e.rows, s.d_head, w.room);
  multiply({e.rows, s.d_head, e.columns}, d, w.keys[0].from(e.low, 0), d_q);
  detail::put_back(d_q, e.rows, s.d_head, to);
  add_transposed({s.d_head, e.columns, e.rows}, in.q.rows(b, h, e.row), passing.right(d, e.rows, e.columns),
                 {w.d_keys.data() + e.low, w.key_width}, w);
  const Strided<const float> p{w.scores.data(), e.columns};
  add_transposed({s.d_value, e.columns, e.rows}, d_o, passing.right(p, e.rows, e.columns),
                 {w.d_values.data() + e.low, w.key_width}, w);
  if (placed) {
    position_backward(s, in, out, e, *placed, w);
  }
}

}  // namespace

void attention_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end) {
  const bool relative = in.relative();
  AttentionWorkspace w(s, relative);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads;
    pack(s, in, b, h, w);
    if (out.d_sink != nullptr) {
      out.d_sink[task] = 0.0F;
    }
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      block_backward(s, in, out, detail::extent_of(s, row), w);
    }
    detail::put_transposed({w.d_keys.data(), w.key_width}, s.d_head, s.keys, out.d_k.rows(b, h), w.room);
    detail::put_transposed({w.d_values.data(), w.key_width}, s.d_value, s.keys, out.d_v.rows(b, h), w.room);
    if (relative) {
      detail::put_transposed({w.d_offsets.data(), w.offset_width}, s.d_head, s.offsets(), out.d_r.rows(b, h), w.room);
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
