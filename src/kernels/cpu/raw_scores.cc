#include "raw_scores.h"

namespace headroom::kernels::detail {

RawScores::RawScores(const AttentionShape& shape, const ComposedTensors& tensors, std::int64_t rows)
    : s(shape),
      in(tensors),
      products(in.mixture != nullptr ? static_cast<std::int64_t>(in.mixture->keys.size()) : 1),
      width(padded(s.keys) + kColumnStep),
      offset_width(s.offsets() + kBlockRows + 2 * kColumnStep),
      tile(rows * padded(s.keys)),
      k(products * s.kv_heads * s.d_head * width),
      r(relative() ? s.heads * s.d_head * offset_width : 0),
      tiles(in.mixture != nullptr ? products * tile : 0),
      positions(relative() ? rows * (padded(s.keys) + 2 * kColumnStep) : 0) {
  for (std::int64_t h = 0; relative() && h < s.heads; ++h) {
    to_columns(in.attention.r.at(0, h), in.attention.r.row, s.offsets(), s.d_head, offset_width,
               r.data() + h * s.d_head * offset_width);
  }
  scaled_copy(r.data(), s.scale, relative() ? s.heads * s.d_head * offset_width : 0, r.data());
}

void RawScores::pack(std::int64_t sequence) {
  b = sequence;
  for (std::int64_t p = 0; p < products; ++p) {
    for (std::int64_t g = 0; g < s.kv_heads; ++g) {
      to_columns(keys(p).at(b, g), keys(p).row, s.keys, s.d_head, width,
                 k.data() + (p * s.kv_heads + g) * s.d_head * width);
    }
  }
  if (product_scale() != 1.0F) {
    scaled_copy(k.data(), product_scale(), products * s.kv_heads * s.d_head * width, k.data());
  }
}

void RawScores::multiply(const Extent& e, std::int64_t h, std::int64_t p, Strided<float> to) const {
  tile_product({e.rows, e.columns, s.d_head, in.attention.q.row, width, to.stride}, query(in.attention.q, e, h),
               k.data() + (p * s.kv_heads + group(h)) * s.d_head * width + e.low, to.data);
}

void RawScores::multiply_all(const Extent& e, std::int64_t h) {
  for (std::int64_t p = 0; p < products; ++p) {
    multiply(e, h, p, {tiles.data() + p * tile, e.columns});
  }
}

MixtureRow RawScores::mixture_row(const Extent& e, std::int64_t h, std::int64_t i) const {
  const MixtureTensors& m = *in.mixture;
  const auto components = static_cast<std::int64_t>(m.factor.size());
  return {.components = components,
          .maximum = m.maximum,
          .product = tiles.data() + i * e.columns,
          .product_stride = products == components ? tile : 0,
          .factor = m.factor.data(),
          .query_term = m.query_term + (b * s.heads + h) * components * s.queries + e.row + i,
          .query_stride = s.queries,
          .key_term = m.key_term + (b * s.kv_heads + group(h)) * components * s.keys + e.low,
          .key_stride = s.keys};
}

ScoreRow RawScores::key_columns(const Extent& e) const {
  return {.low = 0,
          .high = std::min(e.columns, s.keys - e.low),
          .n = e.columns,
          .scale = 1.0F,
          .position = nullptr,
          .bias = nullptr};
}

void RawScores::fill(const Extent& e, std::int64_t h, Strided<float> to) {
  if (in.mixture == nullptr) {
    multiply(e, h, 0, to);
  } else {
    multiply_all(e, h);
    for (std::int64_t i = 0; i < e.rows; ++i) {
      mixture_content_row(key_columns(e), mixture_row(e, h, i), to.data + i * to.stride);
    }
  }
  if (relative()) {
    const std::int64_t n = e.offset_columns();
    const HeadsView<const float>& q = in.attention.q_position;
    tile_product({e.rows, n, s.d_head, q.row, offset_width, n}, query(q, e, h),
                 r.data() + h * s.d_head * offset_width + e.first_offset(s), positions.data());
    for (std::int64_t i = 0; i < e.rows; ++i) {
      const float* from = positions.data() + i * n + e.shift(i);
      float* row = to.data + i * to.stride;
      for (std::int64_t j = 0; j < e.columns; ++j) {
        row[j] += from[j];
      }
    }
  }
}

RawScoreGradients::RawScoreGradients(RawScores& scores, const ComposedGradients& gradients, std::int64_t rows)
    : raw(scores), s(scores.s), out(gradients) {
  keys.make_room(raw.products * s.kv_heads * raw.width * row_width(s.d_head));
  d_keys.make_room(raw.products * s.heads * s.d_head * raw.width);
  columns.make_room(s.d_head * rows);
  if (raw.relative()) {
    const HeadsView<const float>& r = raw.in.attention.r;
    const std::int64_t room = raw.offset_width * row_width(s.d_head);
    offsets.make_room(s.heads * room);
    d_offsets.make_room(s.heads * s.d_head * raw.offset_width);
    for (std::int64_t h = 0; h < s.heads; ++h) {
      to_rows(r.at(0, h), r.row, s.offsets(), s.d_head, raw.offset_width, offsets.data() + h * room);
    }
    scaled_copy(offsets.data(), s.scale, s.heads * room, offsets.data());
  }
}

void RawScoreGradients::begin(std::int64_t new_task) {
  task = new_task;
  const std::int64_t room = raw.width * row_width(s.d_head);
  for (std::int64_t p = 0; p < raw.products; ++p) {
    const HeadsView<const float>& k = raw.keys(p);
    for (std::int64_t g = 0; g < s.kv_heads; ++g) {
      to_rows(k.at(raw.b, g), k.row, s.keys, s.d_head, raw.width, keys.data() + (p * s.kv_heads + g) * room);
    }
  }
  if (raw.product_scale() != 1.0F) {
    scaled_copy(keys.data(), raw.product_scale(), raw.products * s.kv_heads * room, keys.data());
  }
  d_keys.fill(0.0F);
  d_offsets.fill(0.0F);
}

void RawScoreGradients::finish() {
  for (std::int64_t h = 0; h < s.heads; ++h) {
    for (std::int64_t p = 0; p < raw.products; ++p) {
      const HeadsView<float>& d_k = out.d_keys[static_cast<std::size_t>(p)];
      transpose({d_keys.data() + (p * s.heads + h) * s.d_head * raw.width, raw.width}, s.d_head, s.keys,
                {d_k.at(task, h), d_k.row});
    }
    if (raw.relative()) {
      const HeadsView<float>& d_r = out.attention.d_r;
      transpose({d_offsets.data() + h * s.d_head * raw.offset_width, raw.offset_width}, s.d_head, s.offsets(),
                {d_r.at(task, h), d_r.row});
    }
  }
}

void RawScoreGradients::add(const Extent& e, std::int64_t h, Strided<float> d) {
  if (raw.relative()) {
    add_positions(e, h, d);
  }
  if (raw.in.mixture == nullptr) {
    add_product(e, h, 0, d);
    return;
  }
  raw.multiply_all(e, h);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const MixtureRow row = raw.mixture_row(e, h, i);
    const MixtureBackwardRow back{
        .log_sum = 0.0F,
        .mean = 0.0F,
        .d_p = d.data + i * d.stride,
        .d_query_term = out.d_query_term + (raw.b * s.heads + h) * row.components * s.queries + e.row + i,
        .d_key_term = out.d_key_term + (task * s.heads + h) * row.components * s.keys + e.low,
        .key_stride = s.keys};
    mixture_content_backward_row(raw.key_columns(e), row, back, raw.tiles.data() + i * e.columns);
  }
  for (std::int64_t p = 0; p < raw.products; ++p) {
    add_product(e, h, p, {raw.tiles.data() + p * raw.tile, e.columns});
  }
}

void RawScoreGradients::add_product(const Extent& e, std::int64_t h, std::int64_t p, Strided<float> d) {
  const std::int64_t wide = row_width(s.d_head);
  const HeadsView<float>& d_q = out.attention.d_q;
  const HeadsView<const float>& q = raw.in.attention.q;
  tile_product({e.rows, s.d_head, e.columns, d.stride, wide, d_q.row, p > 0}, d.data,
               keys.data() + ((p * s.kv_heads + raw.group(h)) * raw.width + e.low) * wide,
               d_q.at(raw.b, h) + e.row * d_q.row);
  to_columns(raw.query(q, e, h), q.row, e.rows, s.d_head, e.rows, columns.data());
  if (raw.product_scale() != 1.0F) {
    scaled_copy(columns.data(), raw.product_scale(), s.d_head * e.rows, columns.data());
  }
  tile_product({s.d_head, e.columns, e.rows, e.rows, d.stride, raw.width, true}, columns.data(), d.data,
               d_keys.data() + (p * s.heads + h) * s.d_head * raw.width + e.low);
}

void RawScoreGradients::add_positions(const Extent& e, std::int64_t h, Strided<float> d) {
  // Row i of the gradient goes back to where its offsets stand; the rest is 0.
  const std::int64_t n = e.offset_columns(), first = e.first_offset(s), wide = row_width(s.d_head);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    float* to = raw.positions.data() + i * n;
    std::fill(to, to + e.shift(i), 0.0F);
    std::copy_n(d.data + i * d.stride, e.columns, to + e.shift(i));
    std::fill(to + e.shift(i) + e.columns, to + n, 0.0F);
  }
  const HeadsView<float>& d_q = out.attention.d_q_position;
  const HeadsView<const float>& q = raw.in.attention.q_position;
  tile_product({e.rows, s.d_head, n, n, wide, d_q.row}, raw.positions.data(),
               offsets.data() + (h * raw.offset_width + first) * wide, d_q.at(raw.b, h) + e.row * d_q.row);
  to_columns(raw.query(q, e, h), q.row, e.rows, s.d_head, e.rows, columns.data());
  scaled_copy(columns.data(), s.scale, s.d_head * e.rows, columns.data());
  tile_product({s.d_head, n, e.rows, e.rows, n, raw.offset_width, true}, columns.data(), raw.positions.data(),
               d_offsets.data() + h * s.d_head * raw.offset_width + first);
}

}  // namespace headroom::kernels::detail
