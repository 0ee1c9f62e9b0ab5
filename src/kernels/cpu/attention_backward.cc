#include "attention_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::kBlockRows;
using detail::kColumnStep;
using detail::padded;

// One thread's buffers. Gradients of keys, values and offsets grow with their rows as columns, so that every product
// reads its operands as they lie.
struct AttentionWorkspace {
  AttentionWorkspace(const AttentionShape& s, bool relative)
      : width(detail::row_width(s.d_head)),
        key_width(padded(s.keys) + kColumnStep),
        offset_width(s.offsets() + kBlockRows + 2 * kColumnStep) {
    scores.make_room(kBlockRows * padded(s.keys));
    d_scores.make_room(scores.size());
    keys.make_room(key_width * width);
    values.make_room(s.d_head * key_width);
    d_keys.make_room(values.size());
    d_values.make_room(values.size());
    rows.make_room(s.d_head * kBlockRows);
    if (relative) {
      positions.make_room(kBlockRows * (padded(s.keys) + 2 * kColumnStep));
      offsets.make_room(offset_width * width);
      d_offsets.make_room(s.d_head * offset_width);
    }
  }
  std::int64_t width, key_width, offset_width;
  detail::PackedHead head;
  Buffer scores, d_scores;             // [rows, columns]: p and its gradient
  Buffer positions;                    // [rows, offset columns]: position scores, then their gradient
  Buffer keys, offsets;                // [S padded, e], [C padded, e]
  Buffer values;                       // [e, S padded]
  Buffer d_keys, d_values, d_offsets;  // [e, S or C padded]
  Buffer rows;                         // [e, rows]: a block of q or d_o with rows as columns
};

void pack(const AttentionShape& s, const AttentionTensors& in, std::int64_t b, std::int64_t h, AttentionWorkspace& w) {
  const std::int64_t g = h / (s.heads / s.kv_heads);
  w.head.pack(s, in, b, h);
  detail::to_rows(in.k.at(b, g), in.k.row, s.keys, s.d_head, w.key_width, w.keys.data());
  detail::to_columns(in.v.at(b, g), in.v.row, s.keys, s.d_head, w.key_width, w.values.data());
  w.d_keys.fill(0.0F);
  w.d_values.fill(0.0F);
  if (in.q_position.data != nullptr) {
    detail::to_rows(in.r.at(0, h), in.r.row, s.offsets(), s.d_head, w.offset_width, w.offsets.data());
    w.d_offsets.fill(0.0F);
  }
}

// sum [e, columns] += from^T [e, rows] block [rows, columns], the block without gaps.
void add_transposed(const AttentionShape& s, const Extent& e, Strided<const float> from, Strided<const float> block,
                    Strided<float> sum, AttentionWorkspace& w) {
  detail::to_columns(from.data, from.stride, e.rows, s.d_head, e.rows, w.rows.data());
  tile_product({s.d_head, block.stride, e.rows, e.rows, block.stride, sum.stride, true}, w.rows.data(), block.data,
               sum.data);
}

void position_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                       const Extent& e, AttentionWorkspace& w) {
  // Row i of the scores' gradient goes back to where its offsets stand; the rest is 0.
  const std::int64_t n = e.offset_columns(), first = e.first_offset(s), b = w.head.b, h = w.head.h;
  for (std::int64_t i = 0; i < e.rows; ++i) {
    float* to = w.positions.data() + i * n;
    std::fill(to, to + e.shift(i), 0.0F);
    std::copy_n(w.d_scores.data() + i * e.columns, e.columns, to + e.shift(i));
    std::fill(to + e.shift(i) + e.columns, to + n, 0.0F);
  }
  tile_product({e.rows, s.d_head, n, n, w.width, out.d_q_position.row}, w.positions.data(),
               w.offsets.data() + first * w.width, out.d_q_position.at(b, h) + e.row * out.d_q_position.row);
  add_transposed(s, e, {in.q_position.at(b, h) + e.row * in.q_position.row, in.q_position.row}, {w.positions.data(), n},
                 {w.d_offsets.data() + first, w.offset_width}, w);
}

void block_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out, const Extent& e,
                    AttentionWorkspace& w) {
  const std::int64_t b = w.head.b, h = w.head.h;
  const float* d_o = out.d_o.at(b, h) + e.row * out.d_o.row;
  const float* o = out.o.at(b, h) + e.row * out.o.row;
  const float* log_sum = out.log_sum + (b * s.heads + h) * s.queries + e.row;
  w.head.scores(s, in, e, w.scores.data(), w.positions.data());
  tile_product({e.rows, e.columns, s.d_head, out.d_o.row, w.key_width, e.columns}, d_o, w.values.data() + e.low,
               w.d_scores.data());
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const float mean = dot(d_o + i * out.d_o.row, o + i * out.o.row, s.d_head);
    exp_row_backward(detail::score_row(s, in, e, b, i, w.positions.data()), log_sum[i], mean,
                     w.scores.data() + i * e.columns, w.d_scores.data() + i * e.columns);
  }
  tile_product({e.rows, s.d_head, e.columns, e.columns, w.width, out.d_q.row}, w.d_scores.data(),
               w.keys.data() + e.low * w.width, out.d_q.at(b, h) + e.row * out.d_q.row);
  add_transposed(s, e, {in.q.at(b, h) + e.row * in.q.row, in.q.row}, {w.d_scores.data(), e.columns},
                 {w.d_keys.data() + e.low, w.key_width}, w);
  add_transposed(s, e, {d_o, out.d_o.row}, {w.scores.data(), e.columns}, {w.d_values.data() + e.low, w.key_width}, w);
  if (in.q_position.data != nullptr) {
    position_backward(s, in, out, e, w);
  }
}

}  // namespace

void attention_backward(const AttentionShape& s, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end) {
  const bool relative = in.q_position.data != nullptr;
  AttentionWorkspace w(s, relative);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads;
    pack(s, in, b, h, w);
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      block_backward(s, in, out, detail::extent_of(s, row), w);
    }
    transpose({w.d_keys.data(), w.key_width}, s.d_head, s.keys, {out.d_k.at(b, h), out.d_k.row});
    transpose({w.d_values.data(), w.key_width}, s.d_head, s.keys, {out.d_v.at(b, h), out.d_v.row});
    if (relative) {
      transpose({w.d_offsets.data(), w.offset_width}, s.d_head, s.offsets(), {out.d_r.at(b, h), out.d_r.row});
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
