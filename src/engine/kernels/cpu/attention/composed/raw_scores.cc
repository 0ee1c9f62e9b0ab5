#include "composed_block.h"

#include <optional>

namespace headroom::kernels {
namespace {

// Multiplies a block's rows by `factor`.
void scale_rows(const Extent& e, float factor, std::int64_t n, Strided<float> to) {
  for (std::int64_t i = 0; factor != 1.0F && i < e.rows; ++i) {
    scaled_copy(to.data + i * to.stride, factor, n, to.data + i * to.stride);
  }
}

}  // namespace

RawScores::RawScores(const AttentionShape& shape, const ComposedTensors& tensors, std::int64_t rows)
    : s(shape),
      in(tensors),
      products(in.mixture != nullptr ? static_cast<std::int64_t>(in.mixture->keys.size()) : 1),
      width(key_width(s)),
      offset_width(kernels::offset_width(s)),
      tile(rows * padded(s.keys)),
      k(s.bf16, products * s.kv_heads, s.d_head, width),
      r(s.bf16, relative() ? s.heads : 0, s.d_head, offset_width),
      scratch(s.bf16),
      tiles(in.mixture != nullptr ? products * tile : 0),
      positions(relative() ? rows * (padded(s.keys) + 2 * kColumnStep) : 0) {
  for (std::int64_t h = 0; relative() && h < s.heads; ++h) {
    r.set_columns(h, in.attention.r.rows(0, h), s.offsets());
  }
}

void RawScores::pack(std::int64_t sequence) {
  b = sequence;
  for (std::int64_t p = 0; p < products; ++p) {
    for (std::int64_t g = 0; g < s.kv_heads; ++g) {
      k.set_columns(p * s.kv_heads + g, keys(p).rows(b, g), s.keys);
    }
  }
}

void RawScores::multiply_with(const Extent& e, std::int64_t h, std::int64_t p, Strided<float> to) {
  const Left q = scratch.left(in.attention.q.rows(b, h, e.row), e.rows, s.d_head);
  multiply({e.rows, e.columns, s.d_head}, q, k[p * s.kv_heads + group(h)].from(0, e.low), to);
}

void RawScores::multiply_all(const Extent& e, std::int64_t h) {
  for (std::int64_t p = 0; p < products; ++p) {
    multiply_with(e, h, p, {tiles.data() + p * tile, e.columns});
  }
}

MixtureRow RawScores::mixture_row(const Extent& e, std::int64_t h, std::int64_t i) const {
  return kernels::mixture_row(s, *in.mixture, {b, h, e.row + i, e.low}, {tiles.data() + i * e.columns, tile});
}

void RawScores::fill(const Extent& e, std::int64_t h, Strided<float> to) {
  if (in.mixture == nullptr) {
    multiply_with(e, h, 0, to);
    scale_rows(e, s.scale, e.columns, to);
  } else {
    multiply_all(e, h);
    for (std::int64_t i = 0; i < e.rows; ++i) {
      mixture_content_row(key_columns(s, e), mixture_row(e, h, i), to.data + i * to.stride);
    }
  }
  if (relative()) {
    const std::int64_t n = e.offset_columns();
    const Left q = scratch.left(in.attention.q_position.rows(b, h, e.row), e.rows, s.d_head);
    multiply({e.rows, n, s.d_head}, q, r[h].from(0, e.first_offset(s)), {positions.data(), n});
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const float* from = positions.data() + i * n + e.shift(i);
      float* row = to.data + i * to.stride;
      for (std::int64_t j = 0; j < e.columns; ++j) {
        row[j] += s.scale * from[j];
      }
    }
  }
}

RawScoreGradients::RawScoreGradients(RawScores& scores, const ComposedGradients& gradients)
    : raw(scores),
      s(scores.s),
      out(gradients),
      keys(s.bf16, raw.products * s.kv_heads, raw.width, row_width(s.d_head)),
      offsets(s.bf16, raw.relative() ? s.heads : 0, even(raw.offset_width), row_width(s.d_head)),
      d_keys(raw.products * s.heads * s.d_head * raw.width),
      d_offsets(raw.relative() ? s.heads * s.d_head * raw.offset_width : 0) {
  for (std::int64_t h = 0; raw.relative() && h < s.heads; ++h) {
    offsets.set_rows(h, raw.in.attention.r.rows(0, h), s.offsets(), s.d_head);
  }
}

void RawScoreGradients::pack() {
  for (std::int64_t p = 0; p < raw.products; ++p) {
    for (std::int64_t g = 0; g < s.kv_heads; ++g) {
      keys.set_rows(p * s.kv_heads + g, raw.keys(p).rows(raw.b, g), s.keys, s.d_head);
    }
  }
}

void RawScoreGradients::begin(std::int64_t new_task) {
  task = new_task;
  d_keys.fill(0.0F);
  d_offsets.fill(0.0F);
}

// Stores the transpose of matrix i [e, width], n rows of it, to `to`.
void RawScoreGradients::unpack(const Buffer& from, std::int64_t i, std::int64_t width, std::int64_t n,
                               const RowsOut& to) {
  store_transposed({from.data() + i * s.d_head * width, width}, s.d_head, n, to, staging);
}

void RawScoreGradients::finish() {
  if (raw.product_scale() != 1.0F) {
    scaled_copy(d_keys.data(), raw.product_scale(), d_keys.size(), d_keys.data());
  }
  scaled_copy(d_offsets.data(), s.scale, d_offsets.size(), d_offsets.data());
  for (std::int64_t h = 0; h < s.heads; ++h) {
    for (std::int64_t p = 0; p < raw.products; ++p) {
      unpack(d_keys, p * s.heads + h, raw.width, s.keys,
             out.attention.d_keys[static_cast<std::size_t>(p)].rows(task, h));
    }
    if (raw.relative()) {
      unpack(d_offsets, h, raw.offset_width, s.offsets(), out.attention.d_r.rows(task, h));
    }
  }
}

void RawScoreGradients::add(const Extent& e, std::int64_t h, Strided<float> d) {
  const bool mixes = raw.in.mixture != nullptr;
  // Converted once for all matrix multiplications below.
  const Left rows = mixes && !raw.relative() ? Left() : raw.scratch.left({d.data, d.stride}, e.rows, e.columns);
  std::optional<OffsetGradients> placed;
  if (raw.relative()) {
    placed.emplace(s, e, rows, raw.positions);
  }
  const RowsOut to = out.attention.d_q.rows(raw.b, h, e.row);
  const Strided<float> d_q = staged_rows(to, e.rows, s.d_head, staging);
  if (mixes) {
    add_mixture(e, h, d, d_q);
  } else {
    add_product(e, h, 0, rows, d_q);
  }
  scale_rows(e, raw.product_scale(), s.d_head, d_q);
  store_rows(d_q, e.rows, s.d_head, to);
  if (placed) {
    add_positions(e, h, *placed);
  }
}

void RawScoreGradients::add_mixture(const Extent& e, std::int64_t h, Strided<float> d, Strided<float> d_q) {
  raw.multiply_all(e, h);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const MixtureRow row = raw.mixture_row(e, h, i);
    const MixtureBackwardRow back{
        .log_sum = 0.0F,
        .delta = 0.0F,
        .d_p = d.data + i * d.stride,
        .d_query_term = out.attention.d_query_term + (raw.b * s.heads + h) * row.components * s.queries + e.row + i,
        .d_key_term = out.attention.d_key_term + (task * s.heads + h) * row.components * s.keys + e.low,
        .key_stride = s.keys};
    mixture_content_backward_row(key_columns(s, e), row, back, raw.tiles.data() + i * e.columns);
  }
  for (std::int64_t p = 0; p < raw.products; ++p) {
    const Strided<const float> tile{raw.tiles.data() + p * raw.tile, e.columns};
    add_product(e, h, p, raw.scratch.left(tile, e.rows, e.columns), d_q);
  }
}

void RawScoreGradients::add_product(const Extent& e, std::int64_t h, std::int64_t p, const Left& d,
                                    Strided<float> d_q) {
  multiply({e.rows, s.d_head, e.columns}, d, keys[p * s.kv_heads + raw.group(h)].from(e.low, 0), d_q, p > 0);
  const Right right = raw.scratch.right(d, e.rows, e.columns);
  const Left columns = raw.scratch.left_columns(raw.in.attention.q.rows(raw.b, h, e.row), e.rows, s.d_head);
  multiply({s.d_head, e.columns, e.rows}, columns, right,
           {d_keys.data() + (p * s.heads + h) * s.d_head * raw.width + e.low, raw.width}, true);
}

void RawScoreGradients::add_positions(const Extent& e, std::int64_t h, const OffsetGradients& d) {
  const RowsOut to = out.attention.d_q_position.rows(raw.b, h, e.row);
  const Strided<float> d_q = staged_rows(to, e.rows, s.d_head, staging);
  multiply({e.rows, s.d_head, d.n}, d.rows, offsets[h].from(d.first, 0), d_q);
  scale_rows(e, s.scale, s.d_head, d_q);
  store_rows(d_q, e.rows, s.d_head, to);
  const Left columns = raw.scratch.left_columns(raw.in.attention.q_position.rows(raw.b, h, e.row), e.rows, s.d_head);
  multiply({s.d_head, d.n, e.rows}, columns, raw.scratch.right(d.rows, e.rows, d.n),
           {d_offsets.data() + h * s.d_head * raw.offset_width + d.first, raw.offset_width}, true);
}

}  // namespace headroom::kernels
