// What one attention layer costs: its parts' own counts (config/attention_part.h), added up.
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::cost {

using config::AttentionExtent;

// Multiply-accumulates of the matrix products of the reference operators, forward.
struct AttentionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact gates = 0;        // of the heads' results
  Exact selection = 0;    // scores of experts, heads or gates
  Exact scores = 0;       // queries with keys and with distances, weights with values; score = linear: with the state
  Exact composition = 0;  // factors of each token, and heads with heads
  Exact positions = 0;    // relative positions, projected once for a whole batch
  Exact noise = 0;        // noisy_routing, only while training
};
AttentionProducts attention_products(const config::AttentionOptions& attention, Exact d_model,
                                     const AttentionExtent& span);

// What the gate of the heads' results adds to the papers' accounting: d MACs a gate and one for each number that it
// multiplies; the gates and the results before them.
config::PaperTerms paper_output_gate(const config::AttentionOptions& attention, const config::PaperSizes& sizes);

// Trained numbers of one attention layer; `sources` are the key positions that a prior of each position knows.
Exact attention_parameters(const config::AttentionOptions& attention, Exact d_model, Exact sources);
// Those of each of its tensors but the projection's matrices.
Sizes other_attention_tensors(const config::AttentionOptions& attention, Exact d_model, Exact sources);

}  // namespace headroom::cost
