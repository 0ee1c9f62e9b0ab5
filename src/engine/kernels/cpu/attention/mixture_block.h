// What the kernels of mixtures share: where a row of scores finds its products and terms.
#pragma once

#include <cmath>
#include <limits>

#include "attention_block.h"
#include "mixture_attention.h"
#include "mixture_rows.h"

namespace headroom::kernels::detail {

// One query's scores with the keys from `low` on.
struct QueryScores {
  std::int64_t b, h, query, low;
  std::int64_t group(const AttentionShape& s) const { return h / (s.heads / s.kv_heads); }
};

// `products`: this query's with each product's keys.
inline MixtureRow mixture_row(const AttentionShape& s, const MixtureTensors& in, const QueryScores& at,
                              Strided<const float> products) {
  const auto components = static_cast<std::int64_t>(in.factor.size());
  return {.components = components,
          .maximum = in.maximum,
          .product = products.data,
          .product_stride = in.keys.size() == in.factor.size() ? products.stride : 0,
          .factor = in.factor.data(),
          .query_term = in.query_term + (at.b * s.heads + at.h) * components * s.queries + at.query,
          .query_stride = s.queries,
          .key_term = in.key_term + (at.b * s.kv_heads + at.group(s)) * components * s.keys + at.low,
          .key_stride = s.keys};
}

// Every column of a block that belongs to a key, visible or not: composition reads them all.
inline ScoreRow key_columns(const AttentionShape& s, const Extent& e) {
  return {.low = 0,
          .high = std::min(e.columns, s.keys - e.low),
          .n = e.columns,
          .scale = 1.0F,
          .position = nullptr,
          .bias = nullptr};
}

// The products of one query with `n` keys of each product, which are read where they lie.
inline void multiply_where_they_lie(const AttentionShape& s, const MixtureTensors& in, const QueryScores& at,
                                    std::int64_t n, Strided<float> to) {
  Buffer widened;
  const float* q = floats(in.q.rows(at.b, at.h, at.query), 1, s.d_head, widened).data;
  for (const Heads& keys : in.keys) {
    vector_times_columns(q, s.d_head, keys.rows(at.b, at.group(s), at.low), n, to.data);
    to.data += to.stride;
  }
}

// Of a query's weights: 1 over their sum, or 0 where it sees nothing, and the sum's logarithm.
struct MixtureSum {
  float inverse, log_sum;
  MixtureSum(float seen, float most, float epsilon) {
    const float sum = epsilon > 0.0F ? seen + epsilon * std::exp(-most) : seen;  // exp() may be infinite
    inverse = seen > 0.0F ? 1.0F / sum : 0.0F;
    log_sum = seen > 0.0F ? most + std::log(sum) : std::numeric_limits<float>::infinity();
  }
};

}  // namespace headroom::kernels::detail
