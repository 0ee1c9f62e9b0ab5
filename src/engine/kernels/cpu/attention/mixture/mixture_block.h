// Shared by the mixture kernels: the dot products and terms that belong to a row of scores.
#pragma once

#include <cmath>
#include <limits>

#include "engine/kernels/cpu/attention/attention_block.h"
#include "mixture_attention.h"
#include "mixture_rows.h"

namespace headroom::kernels {

// One query and the first key that it is compared with.
struct QueryIndex {
  std::int64_t b, h, query, low;
  std::int64_t group(const AttentionShape& s) const { return h / (s.heads / s.kv_heads); }
};

// `products`: this query's dot products, in P rows.
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

// All columns of a block that belong to a key, visible or not: head composition reads them all.
inline ScoreRow key_columns(const AttentionShape& s, const Extent& e) {
  return {.low = 0,
          .high = std::min(e.columns, s.keys - e.low),
          .n = e.columns,
          .scale = 1.0F,
          .position = nullptr,
          .bias = nullptr};
}

// The dot products of one query with n unpacked keys, written to P rows of `to`.
inline void multiply_unpacked(const AttentionShape& s, const MixtureTensors& in, const QueryIndex& at, std::int64_t n,
                              Strided<float> to) {
  Buffer widened;
  const float* q = as_float32(in.q.rows(at.b, at.h, at.query), 1, s.d_head, widened).data;
  for (const Heads& keys : in.keys) {
    gemv_transposed(q, s.d_head, keys.rows(at.b, at.group(s), at.low), n, to.data);
    to.data += to.stride;
  }
}

// The inverse and the logarithm of the sum of the weights of a query of head h; 0 and +infinity if no key is visible.
struct MixtureSum {
  float inverse = 0.0F, log_sum = std::numeric_limits<float>::infinity();
  MixtureSum(float seen, float most, const MixtureTensors& in, std::int64_t h) {
    if (!(seen > 0.0F)) {
      return;
    }
    float sum = in.epsilon > 0.0F ? seen + in.epsilon * std::exp(-most) : seen;  // exp() may be infinite
    log_sum = most + std::log(sum);
    add_sink(in.sink, h, &log_sum, &sum);
    inverse = 1.0F / sum;
  }
};

}  // namespace headroom::kernels
