#include "mixture_attention.h"

#include "mixture_rows.h"

namespace headroom::kernels {
namespace {

// One thread's packed operands and block of scores, both of one head.
struct PackedBlock {
  PackedBlock(const AttentionShape& s, const MixtureTensors& in)
      : components(static_cast<std::int64_t>(in.factor.size())),
        products(static_cast<std::int64_t>(in.keys.size())),
        width(kernels::key_width(s)),
        stride(kBlockRows * longest_score_stride(s)),
        k(s.bf16, products, s.d_head, width),
        scores(products * stride),
        scratch(s.bf16) {}
  std::int64_t components, products, width;
  std::int64_t stride;  // between products' tiles
  PackedOperands k;     // [P, e, width]
  Buffer scores;        // [P, rows, columns]: dot products, later their gradients
  ScratchOperands scratch;
  std::int64_t b = 0, h = 0, g = 0;

  void pack(const AttentionShape& s, const MixtureTensors& in, std::int64_t task) {
    b = task / s.heads;
    h = task % s.heads;
    g = h / (s.heads / s.kv_heads);
    for (std::int64_t p = 0; p < products; ++p) {
      k.set_columns(p, in.keys[static_cast<std::size_t>(p)].rows(b, g), s.keys);
    }
  }

  ScoreRow visible(const AttentionShape& s, const MixtureTensors& in, const Extent& e, std::int64_t i) const {
    return visible_row(s, e, i, in.key_bias, b);
  }

  MixtureRow mixture(const AttentionShape& s, const MixtureTensors& in, const Extent& e, std::int64_t i) const {
    return mixture_row(s, in, {b, h, e.row + i, e.low}, {scores.data() + i * e.stride(), stride});
  }

  void multiply_all(const AttentionShape& s, const MixtureTensors& in, const Extent& e) {
    const Left q = scratch.left(in.q.rows(b, h, e.row), e.rows, s.d_head);
    for (std::int64_t p = 0; p < products; ++p) {
      multiply_to_scores(e, s.d_head, q, k[p].from(0, e.low), scores.data() + p * stride);
    }
  }
};

// Buffers of the backward pass. Gradients of keys and values are accumulated transposed.
struct MixtureWorkspace {
  MixtureWorkspace(const AttentionShape& s, const MixtureTensors& in)
      : block(s, in),
        p(kBlockRows * longest_score_stride(s)),
        d_p(p.size()),
        values(s.bf16, 1, s.d_value, block.width),
        keys(s.bf16, block.products, block.width, row_width(s.d_head)),
        d_values(s.d_value * block.width),
        d_keys(block.products * s.d_head * block.width) {}
  PackedBlock block;
  Buffer p, d_p;            // [rows, columns]
  PackedOperands values;    // [w, width]
  PackedOperands keys;      // [P, width, e padded]
  Buffer d_values, d_keys;  // [w, width], [P, e, width]
  Buffer staging;           // see staged_wide_rows()

  void pack(const AttentionShape& s, const MixtureTensors& in, std::int64_t task) {
    block.pack(s, in, task);
    values.set_columns(0, in.v.rows(block.b, block.g), s.keys);
    for (std::int64_t i = 0; i < block.products; ++i) {
      keys.set_rows(i, in.keys[static_cast<std::size_t>(i)].rows(block.b, block.g), s.keys, s.d_head);
    }
    d_values.fill(0.0F);
    d_keys.fill(0.0F);
  }

  // sum [width, columns] += from^T [width, n] tile [n, columns]
  void add_transposed(std::int64_t width, const Extent& e, const Rows& from, const Rows& tile, float* sum) {
    const Right right = block.scratch.right(tile, e.rows, e.columns);
    const Left turned = block.scratch.left_columns(from, e.rows, width);
    add_product_with_scores(e, width, turned, right, {sum + e.low, block.width});
  }
};

void block_backward(const AttentionShape& s, const MixtureTensors& in, const AttentionGradients& out, const Extent& e,
                    MixtureWorkspace& w) {
  PackedBlock& block = w.block;
  const std::int64_t task = block.b * s.heads + block.h, size = s.d_head * block.width;
  const Rows d_o = out.d_o.rows(block.b, block.h, e.row), o = out.o.rows(block.b, block.h, e.row);
  float deltas[kBlockRows];
  row_deltas(s, e, d_o, o, deltas);
  block.multiply_all(s, in, e);
  multiply_to_scores(e, s.d_value, block.scratch.left(d_o, e.rows, s.d_value), w.values[0].from(0, e.low),
                     w.d_p.data());
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const MixtureBackwardRow back{.log_sum = out.log_sum[task * s.queries + e.row + i],
                                  .delta = deltas[i],
                                  .d_p = w.d_p.data() + i * e.stride(),
                                  .d_query_term = out.d_query_term + task * block.components * s.queries + e.row + i,
                                  .d_key_term = out.d_key_term + task * block.components * s.keys + e.low,
                                  .key_stride = s.keys};
    mixture_backward_row(block.visible(s, in, e, i), block.mixture(s, in, e, i), back,
                         block.scores.data() + i * e.stride(), w.p.data() + i * e.stride());
    if (out.d_sink != nullptr) {
      out.d_sink[task] -= sink_probability(in.sink, block.h, back.log_sum) * deltas[i];
    }
  }
  const RowsOut to = out.d_q.rows(block.b, block.h, e.row);
  const Strided<float> d_q = staged_wide_rows(to, e.rows, s.d_head, w.staging);
  const Rows q = in.q.rows(block.b, block.h, e.row);
  for (std::int64_t i = 0; i < block.products; ++i) {
    const float* d_scores = block.scores.data() + i * block.stride;
    const Left d = block.scratch.left({d_scores, e.stride()}, e.rows, e.columns);
    multiply_scores(e, row_width(s.d_head), d, w.keys[i].from(e.low, 0), d_q, i > 0);
    w.add_transposed(s.d_head, e, q, d, w.d_keys.data() + i * size);
  }
  store_rows(d_q, e.rows, s.d_head, to);
  w.add_transposed(s.d_value, e, d_o, {w.p.data(), e.stride()}, w.d_values.data());
}

}  // namespace

void mixture_attention_forward(const AttentionShape& s, const MixtureTensors& in, const AttentionResult& out,
                               std::int64_t begin, std::int64_t end) {
  PackedBlock block(s, in);
  PackedOperands values(s.bf16, 1, padded(s.keys), row_width(s.d_value));
  Buffer staging;
  for (std::int64_t task = begin; task < end; ++task) {
    block.pack(s, in, task);
    values.set_rows(0, in.v.rows(block.b, block.g), s.keys, s.d_value);
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      const Extent e = extent_of(s, row);
      float inverse[kBlockRows];
      block.multiply_all(s, in, e);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        float most = 0.0F;
        const float seen = mixture_exp_row(block.visible(s, in, e, i), block.mixture(s, in, e, i), &most,
                                           block.scores.data() + i * e.stride());
        const MixtureSum sum(seen, most, in, block.h);
        inverse[i] = sum.inverse;
        out.log_sum[task * s.queries + row + i] = sum.log_sum;
      }
      const RowsOut to = out.o.rows(block.b, block.h, row);
      const Strided<float> o = staged_wide_rows(to, e.rows, s.d_value, staging);
      const Left p = block.scratch.left({block.scores.data(), e.stride()}, e.rows, e.columns);
      multiply_scores(e, row_width(s.d_value), p, values[0].from(e.low, 0), o);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        scaled_copy(o.data + i * o.stride, inverse[i], s.d_value, o.data + i * o.stride);
      }
      store_rows(o, e.rows, s.d_value, to);
    }
  }
  tile_product_done();
}

void mixture_attention_backward(const AttentionShape& s, const MixtureTensors& in, const AttentionGradients& out,
                                std::int64_t begin, std::int64_t end) {
  MixtureWorkspace w(s, in);
  for (std::int64_t task = begin; task < end; ++task) {
    w.pack(s, in, task);
    if (out.d_sink != nullptr) {
      out.d_sink[task] = 0.0F;
    }
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      block_backward(s, in, out, extent_of(s, row), w);
    }
    const std::int64_t b = w.block.b, h = w.block.h;
    for (std::int64_t i = 0; i < w.block.products; ++i) {
      store_transposed({w.d_keys.data() + i * s.d_head * w.block.width, w.block.width}, s.d_head, s.keys,
                       out.d_keys[static_cast<std::size_t>(i)].rows(b, h), w.staging);
    }
    store_transposed({w.d_values.data(), w.block.width}, s.d_value, s.keys, out.d_v.rows(b, h), w.staging);
  }
  tile_product_done();
}

void mixture_attention_decode(const AttentionShape& s, const MixtureTensors& in, const AttentionResult& out,
                              std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = padded(s.keys);
  Buffer products(static_cast<std::int64_t>(in.keys.size()) * stride);  // the first row later holds the weights
  Buffer staging;
  for (std::int64_t query = begin * s.queries; query < end * s.queries; ++query) {
    const std::int64_t task = query / s.queries, row = query % s.queries;
    const Extent e = extent_of(s, row, 1);
    const QueryIndex at{task / s.heads, task % s.heads, row, e.low};
    const std::int64_t n = std::max<std::int64_t>(0, e.visible_high(s, 0));
    multiply_unpacked(s, in, at, n, {products.data(), stride});
    float most = 0.0F;
    const ScoreRow visible = visible_row(s, e, 0, in.key_bias, at.b);
    const float seen =
        mixture_exp_row(visible, mixture_row(s, in, at, {products.data(), stride}), &most, products.data());
    const MixtureSum sum(seen, most, in, at.h);
    const RowsOut to = out.o.rows(at.b, at.h, row);
    const Strided<float> o = staged_rows(to, 1, s.d_value, staging);
    gemv(products.data(), n, in.v.rows(at.b, at.group(s), e.low), s.d_value, o.data);
    scaled_copy(o.data, sum.inverse, s.d_value, o.data);
    store_rows(o, 1, s.d_value, to);
    out.log_sum[query] = sum.log_sum;
  }
}

}  // namespace headroom::kernels
