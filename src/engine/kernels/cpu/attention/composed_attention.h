// Blocked attention with all heads of a block of rows there together, so that they may be composed before and after the
// softmax (DCMHA); nothing of size T x S outlives its block, and the backward pass computes it again. The scores that
// this begins with are dot products or mixtures of keys (mixture_attention.h), with or without the relative term.
//
// Letters as in attention.h; F = (2 R + 1 with a gate) H numbers that a token contributes to a stage: u [R, H], w
// [R, H], the gate [H].
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "attention.h"
#include "mixture_attention.h"

namespace headroom::kernels {

struct ComposeSide {
  const float* data = nullptr;      // queries [B, T, F] without gaps; keys [B, S, F]
  std::int64_t batch = 0, row = 0;  // strides
  std::int64_t rank = 0;            // R; 0: neither u nor w. Where both sides of a stage have some, the same
  bool gate = false;
  std::int64_t factors(std::int64_t heads) const { return (2 * rank + (gate ? 1 : 0)) * heads; }
};

struct ComposeStage {
  bool present = false, skip = true;
  std::int64_t groups = 1;
  const float* fixed = nullptr;  // [C, m, m]
  ComposeSide query, key;
  std::int64_t rank() const { return std::max(query.rank, key.rank); }
};

struct ComposedTensors {
  AttentionTensors attention;
  const MixtureTensors* mixture = nullptr;  // instead of the products with attention.k
  ComposeStage pre, post;
};

// Every `step`-th block of rows from `begin` on, of the batch * composed_blocks(shape) there are: late rows of a causal
// sequence have more to do than early ones.
std::int64_t composed_blocks(const AttentionShape& shape);
void composed_attention_forward(const AttentionShape& shape, const ComposedTensors& in, const AttentionResult& out,
                                std::int64_t begin, std::int64_t step);

// Calls the body, perhaps on several threads, with ranges that make up [0, n).
using ForRanges = std::function<void(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body)>;

// The same as attention_few_queries(): keys, values and offsets are read where they lie.
void composed_attention_few_queries(const AttentionShape& shape, const ComposedTensors& in, const AttentionResult& out,
                                    const ForRanges& for_ranges);

struct ComposeStageGradients {  // added to; null where the stage has no such part
  float* fixed = nullptr;       // [B, P, C, m, m]
  float* query = nullptr;       // [B, T, F]
  float* key = nullptr;         // [B, P, S, F]
};

// A sequence's blocks of rows are dealt out to P parts, each with gradients of keys, values and their factors of its
// own, for the caller to add up: what is summed with what does not depend on the threads.
struct ComposedGradients {
  std::int64_t parts = 1;
  AttentionGradients attention;   // d_v, d_r and d_sink [B * P, ...]; o and d_k are not used
  std::vector<HeadsOut> d_keys;   // [B * P, H, S, e] for each product
  float* d_query_term = nullptr;  // of a mixture, [B, H, R, T], written
  float* d_key_term = nullptr;    // [B * P, H, R, S], added to
  ComposeStageGradients pre, post;
};

// Tasks [begin, end) of the B * P there are, counted sequence * P + part: neighbours share a sequence.
void composed_attention_backward(const AttentionShape& shape, const ComposedTensors& in, const ComposedGradients& out,
                                 std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
