#include "mixture_attention.h"

#include "mixture_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::kBlockRows;
using detail::multiply;
using detail::padded;

// One thread's operands of one head and its block of scores.
struct Block {
  Block(const AttentionShape& s, const MixtureTensors& in)
      : components(static_cast<std::int64_t>(in.factor.size())),
        products(static_cast<std::int64_t>(in.keys.size())),
        width(detail::key_width(s)),
        stride(kBlockRows * padded(s.keys)),
        k(s.half, products, s.d_head, width),
        scores(products * stride),
        passing(s.half) {}
  std::int64_t components, products, width;
  std::int64_t stride;     // between products' tiles
  detail::KeptOperands k;  // [P, e, width]
  Buffer scores;           // [P, rows, columns]: products, later their gradients
  detail::PassingOperands passing;
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
    return detail::visible_row(s, e, i, in.key_bias, b);
  }

  MixtureRow mixture(const AttentionShape& s, const MixtureTensors& in, const Extent& e, std::int64_t i) const {
    return detail::mixture_row(s, in, {b, h, e.row + i, e.low}, {scores.data() + i * e.columns, stride});
  }

  void multiply_all(const AttentionShape& s, const MixtureTensors& in, const Extent& e) {
    const detail::Left q = passing.left(in.q.rows(b, h, e.row), e.rows, s.d_head);
    for (std::int64_t p = 0; p < products; ++p) {
      multiply({e.rows, e.columns, s.d_head}, q, k[p].from(0, e.low), {scores.data() + p * stride, e.columns});
    }
  }
};

// What the backward pass needs besides the block; gradients of keys and values grow with their rows as columns.
struct MixtureWorkspace {
  MixtureWorkspace(const AttentionShape& s, const MixtureTensors& in)
      : block(s, in),
        p(kBlockRows * padded(s.keys)),
        d_p(p.size()),
        values(s.half, 1, s.d_value, block.width),
        keys(s.half, block.products, block.width, detail::row_width(s.d_head)),
        d_values(s.d_value * block.width),
        d_keys(block.products * s.d_head * block.width) {}
  Block block;
  Buffer p, d_p;                // [rows, columns]
  detail::KeptOperands values;  // [w, width]
  detail::KeptOperands keys;    // [P, width, e padded]
  Buffer d_values, d_keys;      // [w, width], [P, e, width]
  Buffer room;                  // of results that are rounded

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
    const detail::Right right = block.passing.right(tile, e.rows, e.columns);
    const detail::Left turned = block.passing.left_columns(from, e.rows, width);
    multiply({width, e.columns, e.rows}, turned, right, {sum + e.low, block.width}, true);
  }
};

void block_backward(const AttentionShape& s, const MixtureTensors& in, const MixtureGradients& out, const Extent& e,
                    MixtureWorkspace& w) {
  Block& block = w.block;
  const std::int64_t task = block.b * s.heads + block.h, room = s.d_head * block.width;
  const Rows d_o = out.d_o.rows(block.b, block.h, e.row), o = out.o.rows(block.b, block.h, e.row);
  float means[kBlockRows];
  detail::mean_gradients(s, e, d_o, o, means);
  block.multiply_all(s, in, e);
  multiply({e.rows, e.columns, s.d_value}, block.passing.left(d_o, e.rows, s.d_value), w.values[0].from(0, e.low),
           {w.d_p.data(), e.columns});
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const MixtureBackwardRow back{.log_sum = out.log_sum[task * s.queries + e.row + i],
                                  .mean = means[i],
                                  .d_p = w.d_p.data() + i * e.columns,
                                  .d_query_term = out.d_query_term + task * block.components * s.queries + e.row + i,
                                  .d_key_term = out.d_key_term + task * block.components * s.keys + e.low,
                                  .key_stride = s.keys};
    mixture_backward_row(block.visible(s, in, e, i), block.mixture(s, in, e, i), back,
                         block.scores.data() + i * e.columns, w.p.data() + i * e.columns);
  }
  const RowsOut to = out.d_q.rows(block.b, block.h, e.row);
  const Strided<float> d_q = detail::workplace(to, e.rows, s.d_head, w.room);
  const Rows q = in.q.rows(block.b, block.h, e.row);
  for (std::int64_t i = 0; i < block.products; ++i) {
    const float* d_scores = block.scores.data() + i * block.stride;
    const detail::Left d = block.passing.left({d_scores, e.columns}, e.rows, e.columns);
    multiply({e.rows, s.d_head, e.columns}, d, w.keys[i].from(e.low, 0), d_q, i > 0);
    w.add_transposed(s.d_head, e, q, d, w.d_keys.data() + i * room);
  }
  detail::put_back(d_q, e.rows, s.d_head, to);
  w.add_transposed(s.d_value, e, d_o, {w.p.data(), nullptr, e.columns}, w.d_values.data());
}

}  // namespace

void mixture_attention_forward(const AttentionShape& s, const MixtureTensors& in, const AttentionResult& out,
                               std::int64_t begin, std::int64_t end) {
  Block block(s, in);
  detail::KeptOperands values(s.half, 1, padded(s.keys), detail::row_width(s.d_value));
  Buffer room;
  for (std::int64_t task = begin; task < end; ++task) {
    block.pack(s, in, task);
    values.set_rows(0, in.v.rows(block.b, block.g), s.keys, s.d_value);
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      const Extent e = detail::extent_of(s, row);
      float inverse[kBlockRows];
      block.multiply_all(s, in, e);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        float most = 0.0F;
        const float seen = mixture_exp_row(block.visible(s, in, e, i), block.mixture(s, in, e, i), &most,
                                           block.scores.data() + i * e.columns);
        const detail::MixtureSum sum(seen, most, in.epsilon);
        inverse[i] = sum.inverse;
        out.log_sum[task * s.queries + row + i] = sum.log_sum;
      }
      const RowsOut to = out.o.rows(block.b, block.h, row);
      const Strided<float> o = detail::workplace(to, e.rows, s.d_value, room);
      const detail::Left p = block.passing.left({block.scores.data(), e.columns}, e.rows, e.columns);
      multiply({e.rows, s.d_value, e.columns}, p, values[0].from(e.low, 0), o);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        scaled_copy(o.data + i * o.stride, inverse[i], s.d_value, o.data + i * o.stride);
      }
      detail::put_back(o, e.rows, s.d_value, to);
    }
  }
  tile_product_done();
}

void mixture_attention_backward(const AttentionShape& s, const MixtureTensors& in, const MixtureGradients& out,
                                std::int64_t begin, std::int64_t end) {
  MixtureWorkspace w(s, in);
  for (std::int64_t task = begin; task < end; ++task) {
    w.pack(s, in, task);
    for (std::int64_t row = 0; row < s.queries; row += kBlockRows) {
      block_backward(s, in, out, detail::extent_of(s, row), w);
    }
    const std::int64_t b = w.block.b, h = w.block.h;
    for (std::int64_t i = 0; i < w.block.products; ++i) {
      detail::put_transposed({w.d_keys.data() + i * s.d_head * w.block.width, w.block.width}, s.d_head, s.keys,
                             out.d_keys[static_cast<std::size_t>(i)].rows(b, h), w.room);
    }
    detail::put_transposed({w.d_values.data(), w.block.width}, s.d_value, s.keys, out.d_v.rows(b, h), w.room);
  }
  tile_product_done();
}

}  // namespace headroom::kernels
