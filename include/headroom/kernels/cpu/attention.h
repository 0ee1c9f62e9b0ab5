// Blocked softmax attention on the CPU: rows of scores live in a block that is computed, used and forgotten; the
// backward pass computes them again.
//
// Letters: B batch, H heads, G key/value heads, T queries, S keys, e d_head, C offsets (= S when causal, else S + T -
// 1).
#pragma once

#include <cstdint>

#include "headroom/kernels/cpu/bfloat16.h"

namespace headroom::kernels {

// A [B, heads, rows, e] tensor whose last axis is contiguous.
template <class T>
struct HeadsView {
  T* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;  // strides in elements
  T* at(std::int64_t b, std::int64_t h) const { return data + b * batch + h * head; }
};

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, d_head;
  bool causal;
  std::int64_t window;  // 0: none
  float scale;
  bool half = false;  // operands of products are rounded to bfloat16: for tensors that were bfloat16
  std::int64_t offsets() const { return causal ? keys : keys + queries - 1; }
};

template <class T>
struct AttentionTensorsOf {
  HeadsView<const float> q;           // [B, H, T, e]
  HeadsView<const T> k, v;            // [B, G, S, e]
  HeadsView<const float> q_position;  // [B, H, T, e]; data null: no relative term
  HeadsView<const T> r;               // [-, H, C, e], batch stride unused
  const float* key_bias = nullptr;    // [B, S], 0 or -infinity; null: all keys are valid
};
using AttentionTensors = AttentionTensorsOf<float>;

struct AttentionResult {
  HeadsView<float> o;  // [B, H, T, e]
  float* log_sum;      // [B, H, T]
};

// Heads [begin, end) of the B * H there are, counted b * H + h.
void attention_forward(const AttentionShape& shape, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end);
// The same without packing keys and values first, which fewer queries than these are not worth: float or BFloat16,
// they are read where they lie.
constexpr std::int64_t kFewQueries = 8;
template <class T>
void attention_few_queries(const AttentionShape& shape, const AttentionTensorsOf<T>& in, const AttentionResult& out,
                           std::int64_t begin, std::int64_t end);

struct AttentionGradients {
  HeadsView<const float> d_o, o;       // given
  const float* log_sum;                // given
  HeadsView<float> d_q, d_q_position;  // written
  // Written per query head, [B, H, ...]: the caller adds up heads that share a key and, for r, the batch.
  HeadsView<float> d_k, d_v;  // [B, H, S, e]
  HeadsView<float> d_r;       // [B, H, C, e]
};

void attention_backward(const AttentionShape& shape, const AttentionTensors& in, const AttentionGradients& out,
                        std::int64_t begin, std::int64_t end);

}  // namespace headroom::kernels
