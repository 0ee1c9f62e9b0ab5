// Blocked softmax attention on the CPU: rows of scores live in a block that is computed, used and discarded; the
// backward pass computes them again.
//
// Letters: B batch, H heads, G key/value heads, T queries, S keys, e d_head, w d_value, C offsets (= S when causal,
// else S + T - 1).
#pragma once

#include <cstdint>

#include "heads.h"

namespace headroom::kernels {

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, d_head, d_value;
  bool causal;
  std::int64_t window;  // 0: none
  float scale;
  bool half = false;  // operands of products are rounded to bfloat16: for tensors of bfloat16
  std::int64_t offsets() const { return causal ? keys : keys + queries - 1; }
};

struct AttentionTensors {
  Heads q;                          // [B, H, T, e]
  Heads k, v;                       // [B, G, S, e], [B, G, S, w]
  Heads q_position;                 // [B, H, T, e]; not there: no relative term
  Heads r;                          // [-, H, C, e], batch stride unused
  const float* key_bias = nullptr;  // [B, S], 0 or -infinity; null: all keys are valid
  const float* sink = nullptr;      // [H], exp(sink) is added to the sum of a row's exponentials; null: nothing is
  bool relative() const { return q_position.there(); }
};

struct AttentionResult {
  HeadsOut o;      // [B, H, T, w]
  float* log_sum;  // [B, H, T]
};

// Heads [begin, end) of the B * H there are, counted b * H + h.
void attention_forward(const AttentionShape& shape, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end);
// The same without packing keys and values first, which fewer queries than these are not worth: they are read where
// they lie.
constexpr std::int64_t kFewQueries = 8;
void attention_few_queries(const AttentionShape& shape, const AttentionTensors& in, const AttentionResult& out,
                           std::int64_t begin, std::int64_t end);

struct AttentionGradients {
  Heads d_o, o;                // given, in one type
  const float* log_sum;        // given
  HeadsOut d_q, d_q_position;  // written
  // Written per query head, [B, H, ...]: the caller adds up heads that share a key and, for r, the batch.
  HeadsOut d_k, d_v;        // [B, H, S, e], [B, H, S, w]
  HeadsOut d_r;             // [B, H, C, e]
  float* d_sink = nullptr;  // [B, H]
};

void attention_backward(const AttentionShape& shape, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
