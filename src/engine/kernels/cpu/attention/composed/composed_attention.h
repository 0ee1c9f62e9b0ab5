// Blocked attention that computes all heads of a block of rows together, so that heads can be composed before and after
// the softmax (DCMHA). Scores exist only for one block at a time; the backward pass recomputes them. Raw scores are dot
// products or mixtures of keys (mixture_attention.h), with or without the relative term.
//
// Letters as in attention.h; R rank, C groups of m heads. F = 2 R H factors of a token, plus H with a gate: u [R, H],
// w [R, H], gate [H].
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "engine/kernels/cpu/attention/attention.h"
#include "engine/kernels/cpu/attention/mixture/mixture_attention.h"

namespace headroom::kernels {

struct ComposeSide {
  const float* data = nullptr;      // queries: [B, T, F] without gaps; keys: [B, S, F]
  std::int64_t batch = 0, row = 0;  // strides
  std::int64_t rank = 0;            // R; 0: neither u nor w. Ranks of both sides of a stage are equal or one is 0
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
  const MixtureTensors* mixture = nullptr;  // optional; replaces the dot products with attention.k
  ComposeStage pre, post;
};

// Computes every `step`-th of the batch * composed_blocks(shape) blocks of rows from `begin` on. Strided for balance:
// later rows of a causal sequence see more keys.
std::int64_t composed_blocks(const AttentionShape& shape);
void composed_attention_forward(const AttentionShape& shape, const ComposedTensors& in, const AttentionResult& out,
                                std::int64_t begin, std::int64_t step);

// Calls the body with ranges that partition [0, n), possibly on several threads.
using ForRanges = std::function<void(std::int64_t n, const std::function<void(std::int64_t, std::int64_t)>& body)>;

// The decode path: composed_attention_forward() without packing keys, values and offsets.
void composed_attention_decode(const AttentionShape& shape, const ComposedTensors& in, const AttentionResult& out,
                               const ForRanges& for_ranges);

struct ComposeStageGradients {  // accumulated into; null if the stage has no such part
  float* fixed = nullptr;       // [B, P, C, m, m]
  float* query = nullptr;       // [B, T, F]
  float* key = nullptr;         // [B, P, S, F]
};

// A sequence's blocks of rows are distributed over P parts. Each part has its own gradients of keys, values and key
// factors, which the caller sums, so that the order of summation does not depend on the number of threads.
struct ComposedGradients {
  std::int64_t parts = 1;
  AttentionGradients attention;  // d_keys, d_v, d_r, d_sink and d_key_term are [B * P, ...]; o is not used
  ComposeStageGradients pre, post;
};

// Computes tasks [begin, end) of B * P; part p of a sequence is task sequence * P + p.
void composed_attention_backward(const AttentionShape& shape, const ComposedTensors& in, const ComposedGradients& out,
                                 std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
