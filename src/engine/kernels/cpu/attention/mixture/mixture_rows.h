// Vectorised elementwise kernels on one row of a mixture's scores, with its dot products and terms, and on rows of keys
// and queries.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/kernels/cpu/attention/attention_block.h"
#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/operands.h"
#include "mixture_attention.h"

namespace headroom::kernels {

constexpr std::int64_t kMostComponents = 64;

// s_r = factor[r] product_r + query_term[r] + key_term_r (+ the bias of the score row), r < R. A key's weight is
// sum_r exp(s_r) or, with `maximum`, max_r exp(s_r).
struct MixtureRow {
  std::int64_t components;
  bool maximum;
  const float* product;         // [R] rows, row r at r * product_stride
  std::int64_t product_stride;  // 0: all components share one row
  const float* factor;          // [R]
  const float* query_term;      // [R], entry r at r * query_stride
  std::int64_t query_stride;
  const float* key_term;  // [R] rows, row r at r * key_stride
  std::int64_t key_stride;
};

// Writes the weights times exp(-most) to `to`, which may be the first product's row; invisible entries become 0.
// Returns their sum. `most` receives the largest visible s_r, -infinity if nothing is visible.
float mixture_exp_row(const ScoreRow& row, const MixtureRow& mixture, float* most, float* to);

struct MixtureBackwardRow {
  float log_sum, delta;
  const float* d_p;
  float* d_query_term;  // laid out like query_term; overwritten
  float* d_key_term;    // [R] rows, row r at r * key_stride; accumulated into
  std::int64_t key_stride;
};

// One row's backward pass. With p_r = exp(s_r - log_sum) and d_s_r = p_r (d_p - delta), row r of `d_product` (which may
// be the products) becomes factor_r d_s_r, summed over r if all share one product; `p` becomes sum_r p_r. With
// `maximum`, the component with the largest s_r gets all of p; ties share it equally. Invisible entries become 0 in
// `d_product` and `p`.
void mixture_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                          float* d_product, float* p);

// Content scores: to_j = log sum_r exp(s_rj), or max_r s_rj, for the visible entries; the others become 0. `to` must
// not be a product's row.
void mixture_content_row(const ScoreRow& row, const MixtureRow& mixture, float* to);

// Backward pass of mixture_content_row(): back.d_p holds the gradient of the content scores; log_sum and delta are not
// used. `d_product` is written as in mixture_backward_row().
void mixture_content_backward_row(const ScoreRow& row, const MixtureRow& mixture, const MixtureBackwardRow& back,
                                  float* d_product);

// Terms of a Gaussian's exponent that depend only on the query or only on the key: the vector's squared length, and its
// dot products with R directions (Transformer-MGK, Eq. 7-13, shifted keys).
struct RowTermsInput {
  std::int64_t n, e, directions;  // n rows of width e, R
  Rows rows;
  const float* direction;  // [R, e]
};

// terms [1 + R, n]: |t_i|^2, then t_i . direction_r, accumulated in float32.
void row_terms(const RowTermsInput& in, float* terms);

// Writes the rows' gradients in their type, and adds the directions' gradients to d_direction [R, e].
void row_terms_backward(const RowTermsInput& in, const float* d_terms, const RowsOut& d_rows, float* d_direction);

// A query and the first key of its row of scores.
struct QueryIndex {
  std::int64_t b, h, query, low;
  std::int64_t group(const AttentionShape& s) const { return h / (s.heads / s.kv_heads); }
};

// Views of query `at`'s terms and of its dot products, which are in P rows.
inline MixtureRow mixture_row(const AttentionShape& s, const MixtureTensors& in, const QueryIndex& at,
                              Strided<const float> products) {
  const auto components = static_cast<std::int64_t>(in.factor.size());
  const std::int64_t key_term_head = at.b * in.key_term_heads + at.h / (s.heads / in.key_term_heads);
  return {.components = components,
          .maximum = in.maximum,
          .product = products.data,
          .product_stride = in.keys.size() == in.factor.size() ? products.stride : 0,
          .factor = in.factor.data(),
          .query_term = in.query_term + (at.b * s.heads + at.h) * components * s.queries + at.query,
          .query_stride = s.queries,
          .key_term = in.key_term + key_term_head * components * s.keys + at.low,
          .key_stride = s.keys};
}

// Makes all columns of a block that belong to a key visible: head composition reads hidden ones too.
inline ScoreRow key_columns(const AttentionShape& s, const Extent& e) {
  return {.low = 0,
          .high = std::min(e.columns, s.keys - e.low),
          .n = e.columns,
          .scale = 1.0F,
          .position = nullptr,
          .bias = nullptr};
}

// Writes the dot products of one query with n unpacked keys to P rows of `to`.
inline void multiply_unpacked(const AttentionShape& s, const MixtureTensors& in, const QueryIndex& at, std::int64_t n,
                              Strided<float> to) {
  Buffer widened;
  const float* q = as_float32(in.q.rows(at.b, at.h, at.query), 1, s.d_head, widened).data;
  for (const Heads& keys : in.keys) {
    gemv_transposed(q, s.d_head, keys.rows(at.b, at.group(s), at.low), n, to.data);
    to.data += to.stride;
  }
}

// Inverse and logarithm of a query's softmax denominator for head h; 0 and +infinity if no key is visible.
struct MixtureSum {
  float inverse = 0.0F, log_sum = std::numeric_limits<float>::infinity();
  MixtureSum(float seen, float most, const MixtureTensors& in, std::int64_t h) {
    if (seen == 0.0F) {
      return;
    }
    float sum = in.epsilon > 0.0F ? seen + in.epsilon * std::exp(-most) : seen;  // exp() may be infinite
    log_sum = most + std::log(sum);
    add_sink(in.sink, h, &log_sum, &sum);
    inverse = 1.0F / sum;
  }
};

}  // namespace headroom::kernels
