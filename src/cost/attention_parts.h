// What one attention layer computes and keeps, part by part: the one place that knows the reference operators' products
// and the projections' shapes. Symbols as in cost.h; G key/value heads, R keys at a position (key_components()).
#pragma once

#include "exact.h"
#include "headroom/config/attention_options.h"

namespace headroom::cost {

// The tokens that one attention layer reads for one sequence.
struct Span {
  Exact queries = 0, sources = 0;  // memory tokens are sources
  bool causal = true;
  bool self = true;  // the queries are the last of the sources; false: cross-attention, which knows no positions
};

// Multiply-accumulates of the matrix products of the reference operators, forward.
struct AttentionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact selection = 0;    // scores of experts, heads or gates
  Exact scores = 0;       // queries with keys, weights with values; score = linear: with the state
  Exact composition = 0;  // factors of each token, and heads with heads
  Exact positions = 0;    // relative positions, projected once for a whole batch
  Exact noise = 0;        // noisy_routing, only while training
};
AttentionProducts attention_products(const config::AttentionOptions& attention, Exact d_model, const Span& span);

// Trained numbers of one attention layer; `sources` are the key positions that a prior of each position knows.
Exact attention_parameters(const config::AttentionOptions& attention, Exact d_model, Exact sources);

// One side (query or key) of a dynamic composition, at one stage (pre or post).
struct ComposeSide {
  Exact factor_parameters = 0;  // also the multiply-accumulates that make one token's factors
  Exact factors = 0;            // numbers that one token's factors are
  bool low_rank = false;
};
ComposeSide compose_side(const config::AttentionOptions& attention, Exact d_model, const std::string& side);

// Stages (pre, post) with a composition.
std::int64_t compose_stages(const config::AttentionOptions& attention);

// Neighbouring heads that may mix.
inline std::int64_t heads_of_group(const config::AttentionOptions& attention) {
  return attention.n_heads / attention.compose_groups;
}

inline bool is_routed(const config::AttentionOptions& attention) {
  return attention.projection == config::Projection::routed_heads;
}

// Scores that choose experts, heads or gates: numbers for each token of the destination or of the source.
std::int64_t selection_width(const config::AttentionOptions& attention);

}  // namespace headroom::cost
