// Blocked softmax attention on the CPU. Scores exist only for one block of rows at a time; the backward pass recomputes
// them.
//
// Letters: B batch, H heads, G key/value heads, T queries, S keys, e d_head, w d_value, C offsets (S if causal,
// else S + T - 1).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/cpu/matmul/operands.h"

namespace headroom::kernels {

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, d_head, d_value;
  bool causal;
  std::int64_t window;  // 0: none
  float scale;
  bool bf16 = false;  // multiply in bfloat16; only for bfloat16 tensors
  std::int64_t offsets() const { return causal ? keys : keys + queries - 1; }
};

struct ScoreFormula;  // formula_rows.h

struct AttentionTensors {
  Heads q;                                // [B, H, T, e]
  Heads k, v;                             // [B, G, S, e], [B, G, S, w]
  Heads q_position;                       // [B, H, T, e]; undefined: no relative position term
  Heads r;                                // [-, H, C, e], batch stride unused
  const float* key_bias = nullptr;        // [B, S], 0 or -infinity; null: all keys are valid
  const float* sink = nullptr;            // [H], exp(sink) is added to the softmax denominator; null: no sink
  const ScoreFormula* formula = nullptr;  // replaces the scaled dot products and masks them; without a relative term
  bool relative() const { return q_position.defined(); }
};

struct AttentionResult {
  HeadsOut o;      // [B, H, T, w]
  float* log_sum;  // [B, H, T], logarithm of the softmax denominator
};

// Computes heads [begin, end) of B * H; head h of sequence b has index b * H + h. Packs each head's keys and values
// first.
void attention_forward(const AttentionShape& shape, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end);
// The decode path: the same without packing, which is not worthwhile below kMinBlockedQueries queries.
constexpr std::int64_t kMinBlockedQueries = 8;
void attention_decode(const AttentionShape& shape, const AttentionTensors& in, const AttentionResult& out,
                      std::int64_t begin, std::int64_t end);

// Gradients of the tensors that a formula reads, [B, H, size] each, in ScoreFormula's order. They are accumulated into.
struct FormulaGradients {
  std::vector<float*> learned, tables, tokens;
};

struct AttentionGradients {
  Heads d_o, o;                     // inputs, of the same type
  const float* log_sum = nullptr;   // input
  HeadsOut d_q, d_q_position = {};  // outputs
  // Outputs per query head: the caller sums over heads that share a key and, for r, over the batch.
  std::vector<HeadsOut> d_keys;   // [B, H, S, e], one for each dot product of a mixture
  HeadsOut d_v;                   // [B, H, S, w]
  HeadsOut d_r = {};              // [B, H, C, e]
  float* d_sink = nullptr;        // [B, H]
  float* d_query_term = nullptr;  // [B, H, R, T], mixtures only; overwritten
  float* d_key_term = nullptr;    // [B, H, R, S], mixtures only; accumulated into
  FormulaGradients formula = {};
};

void attention_backward(const AttentionShape& shape, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
