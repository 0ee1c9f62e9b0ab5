// Softmax attention over any mask: dot products or mixtures of keys, Transformer-XL's relative term, heads composed
// before and after the softmax.
//
// Letters: B batch, H heads, G key/value heads (H a multiple of G), T queries, S keys, e d_head, w width of a value, C
// offsets.
//   s_ij = content_ij + scale * p_i . r_delta + bias_ij,  delta = j - (S - T + i)    (Transformer-XL; SwitchHead
//   section 2.2)
//   content_ij = scale * q_i . k_j, or a mixture's log weight (Mixture)
//   a_ij = pre(s_ij) across heads, p_i = softmax over visible j of a_ij, o_i = sum_j post(p_ij) v_j
//   with a sink b of the head: p_ij = exp(a_ij) / (exp(b) + sum over visible j of exp(a_ij))
// A row without a visible key gives 0.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headroom/core/implementation.h"
#include "headroom/ops/head_map.h"

namespace headroom::ops {

struct AttentionMask {
  bool causal = true;                    // key j is visible to query i iff j <= S - T + i
  std::int64_t window = 0;               // causal only: at most so many keys, the query's own included; 0: all
  std::optional<at::Tensor> valid_keys;  // [B, S] bool
};

// R keys at each position (Transformer-MGK, Eq. 7-13): s_r = -c_r |q_i - k_jr|^2, or scale * q_i . k_jr;
//   content_ij = log sum_r prior_r(j) exp(s_r), computed without overflow, or max_r s_r.
struct Mixture {
  std::vector<at::Tensor> more_keys;      // own keys: components 2 .. R, shaped as k
  std::optional<at::Tensor> shift;        // shifted keys: k_jr = k_j - shift[r], [R, G, S or 1, e]
  std::optional<at::Tensor> coefficient;  // c_r, [R]; without it: the scaled dot product
  std::optional<at::Tensor> prior;        // [R, G, S or 1], at least 0; without it: 1
  bool maximum = false;                   // the best component alone, no prior
  double epsilon = 0.0;                   // added to the sum of a query's weights sum_j exp(content_ij)
  std::int64_t n_components() const;
};

// What one of several sequences has of its own: rows [begin, begin + size) of k [1, G, C, e] and v [1, G, C, w], of
// which `valid_keys` [1, size] bool count, all without it.
struct SequenceKeys {
  at::Tensor k, v;
  std::int64_t begin = 0, size = 0;
  std::optional<at::Tensor> valid_keys = {};
};

struct AttentionInputs {
  at::Tensor q;  // [B, H, T, e]
  at::Tensor k;  // [B, G, S, e]
  at::Tensor v;  // [B, G, S, w]
  double scale = 1.0;
  AttentionMask mask;
  // The relative term: both or neither.
  std::optional<at::Tensor> q_position;  // p, [B, H, T, e]
  std::optional<at::Tensor> r;     // [H, C, e], row c belongs to delta = c - (S - 1); C = S when causal, else S + T - 1
  std::optional<at::Tensor> bias;  // added to the scores, [B or 1, H, T or 1, S]
  std::optional<at::Tensor> sink;  // b, [H]: a weight that goes to no value
  std::optional<Mixture> mixture;
  std::optional<HeadMap> pre, post;  // head composition on the scores, and on the probabilities
  // Decoding: B sequences of one query, each with keys and values of its own, as many as it has; k and v are then those
  // of a sequence that has the most, r's last rows are each one's, and the rest is the same for all. Each gets what it
  // gets alone, bit for bit. Not differentiable.
  std::vector<SequenceKeys> sequences = {};
};

// [B, H, T, w], differentiable in every tensor but the mask. Throws Error on shapes that do not fit.
at::Tensor attention(const AttentionInputs& inputs, Implementation implementation = Implementation::automatic);

// What the reference computes between queries and results, [B, H, T, S] each, in this order.
enum class AttentionStage {
  component,        // s_r of a mixture, without the relative term: once for each r
  scores,           // s_ij, not masked
  scores_composed,  // a_ij; s_ij where heads do not compose
  probs,            // p_ij
  probs_composed,   // post(p_ij); p_ij where heads do not compose
};
// Returns what is used in the place of a stage's value: the value itself, or another of its shape and type.
using Visit = std::function<at::Tensor(AttentionStage stage, at::Tensor value)>;

// The same in plain tensor operations; `visit` is called at every stage.
at::Tensor attention_reference(const AttentionInputs& inputs, const Visit& visit = {});

// What becomes of scores a_ij [B, H, T, S], in at least float32: the weights p_ij, of the same shape. `visible` is
// bool, [T, S] or [B, 1, T, S], or undefined where every query sees every key.
using Weigh = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& visible)>;

// The reference with other weights than the softmax's.
at::Tensor weighted_attention(const AttentionInputs& inputs, const Weigh& weigh, const Visit& visit = {});

}  // namespace headroom::ops
