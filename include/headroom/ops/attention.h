// Softmax attention: dot products or mixtures of keys, Transformer-XL's relative position term, head composition before
// and after the softmax, attention sinks, differences of two attention matrices.
//
// Letters: B batch, H heads, G key/value heads (H a multiple of G), T queries, S keys, e d_head, w d_value, C offsets.
//   s_ij = content_ij + scale * p_i . r_delta + bias_ij,  delta = j - (S - T + i)    (Transformer-XL; SwitchHead
//   section 2.2); bias_ij is the sum of `bias`, query_bias_i and key_bias_j
//   content_ij = scale * q_i . k_j, or a mixture's log weight (Mixture)
//   s_ij is then replaced by a formula of it (ScoreFormula)
//   a_ij = pre(s_ij) across heads, p_i = softmax over visible j of a_ij, o_i = sum_j post(p_ij) v_j
//   with a sink b of the head: p_ij = exp(a_ij) / (exp(b) + sum over visible j of exp(a_ij))
// If a query sees no key, o_i is 0.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/implementation.h"
#include "headroom/ops/head_map.h"

namespace headroom::ops {

struct AttentionMask {
  bool causal = true;                    // key j is visible to query i iff j <= S - T + i
  std::int64_t window = 0;               // causal only: number of visible keys, including the query's own; 0: all
  std::optional<at::Tensor> valid_keys;  // [B, S] bool
};

// R keys at each position (Transformer-MGK, Eq. 7-13): s_r = -c_r |q_i - k_jr|^2, or scale * q_i . k_jr;
//   content_ij = log sum_r prior_r(j) exp(s_r), computed without overflow, or max_r s_r.
struct Mixture {
  // Set either more_keys or shift.
  std::vector<at::Tensor> more_keys;      // separate keys of components 2 .. R, each of k's shape
  std::optional<at::Tensor> shift;        // k_jr = k_j - shift[r], [R, G, S or 1, e]
  std::optional<at::Tensor> coefficient;  // c_r, [R]; if not set: scaled dot products
  std::optional<at::Tensor> prior;        // [R, G, S or 1], at least 0; if not set: 1
  bool maximum = false;                   // use the largest s_r, without priors
  double epsilon = 0.0;                   // added to a query's softmax denominator sum_j exp(content_ij)
  std::int64_t n_components() const;
};

// Keys and values of one sequence: rows [begin, begin + size) of k [1, G, C, e] and v [1, G, C, w]. `valid_keys` [1,
// size] bool; if not set, all are valid.
struct SequenceKeys {
  at::Tensor k, v;
  std::int64_t begin = 0, size = 0;
  std::optional<at::Tensor> valid_keys = {};
};

// A formula of the score s_ij, the positions i of the query and j of the key, the head and learned values, and a mask
// of the same variables without s, written as in foundation/core/formula with canonical names: learned0, table0[index],
// token0(i), token0(j). Empty: s; all keys. A key is visible if this mask and AttentionMask allow it.
struct ScoreFormula {
  std::string score, mask;
  bool normalise = true;            // false: the weight of a visible key is its score, without a softmax
  bool queries_last = true;         // query t has position first_key + S - T + t; false: t
  std::int64_t first_key = 0;       // position of key 0
  std::vector<at::Tensor> learned;  // [H]
  std::vector<at::Tensor> tables;   // [B or 1, H or 1, size]; an index is rounded down and clamped to the table
  std::vector<at::Tensor> tokens;   // [B or 1, H or 1, S]; the last T also belong to the queries
  bool given() const { return !score.empty() || !mask.empty() || !normalise; }
  template <class V>
  void visit(V& v) {
    v("formula", score, "formula_mask", mask, "formula_normalise", normalise, "formula_queries_last", queries_last);
    v("formula_first_key", first_key, "formula_learned", learned, "formula_tables", tables, "formula_tokens", tokens);
  }
};

struct AttentionInputs {
  at::Tensor q;  // [B, H, T, e]
  at::Tensor k;  // [B, G, S, e]
  at::Tensor v;  // [B, G, S, w]
  double scale = 1.0;
  AttentionMask mask;
  // The relative position term; set both or neither.
  std::optional<at::Tensor> q_position;  // p, [B, H, T, e]
  std::optional<at::Tensor> r;     // [H, C, e], row c belongs to delta = c - (S - 1); C = S when causal, else S + T - 1
  std::optional<at::Tensor> bias;  // added to the scores, [B or 1, H, T or 1, S]
  // A bias that is a sum of two terms, which the fused kernels support; set both or neither.
  std::optional<at::Tensor> query_bias, key_bias;  // [B or 1, H, T], [B or 1, H, S]
  std::optional<at::Tensor> sink;                  // b, [H]
  std::optional<Mixture> mixture;
  ScoreFormula formula;
  std::optional<HeadMap> pre, post;  // head composition on the scores, and on the probabilities
  // c, [B or 1, H or 1, T or 1, 1]: differential heads. q then has 2 H heads, and head h of the result has the weights
  // p_2h - c_h p_2h+1. v has G heads; k has G or 2 G: keys 2g and 2g+1 for the two matrices. r has 2 H heads; bias and
  // sink 2 H, or H for both matrices of a head. Cannot be combined with pre and post.
  std::optional<at::Tensor> difference;
  // Batched decoding: B sequences with one query each and separate keys and values of any lengths. k and v must belong
  // to a longest sequence; each sequence uses the last rows of r. Batch-invariant; not differentiable.
  std::vector<SequenceKeys> sequences = {};
};

// Returns [B, H, T, w], differentiable in every tensor except the mask. Throws Error if shapes do not match.
at::Tensor attention(const AttentionInputs& inputs, Implementation implementation = Implementation::automatic);

// Intermediate values of the reference, [B, H, T, S] each, in order of computation.
enum class AttentionStage {
  component,        // s_r of a mixture, without the relative term; once for each r
  scores,           // s_ij before masking
  scores_composed,  // a_ij; s_ij without composition
  probs,            // p_ij
  probs_composed,   // post(p_ij); p_ij without composition. With `difference`, all other stages have 2 H heads
};
// Returns the value to continue with: the given one, or a replacement of the same shape and dtype.
using Visit = std::function<at::Tensor(AttentionStage stage, at::Tensor value)>;

// attention() in plain tensor operations. Calls `visit`, if set, at every stage.
at::Tensor attention_reference(const AttentionInputs& inputs, const Visit& visit = {});

// Maps scores a_ij [B, H, T, S], in at least float32, to weights p_ij of the same shape. `visible` is bool, [T, S] or
// [B, 1, T, S], or undefined if every query sees every key.
using Weigh = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& visible)>;

// attention_reference() with `weigh` in place of the softmax.
at::Tensor weighted_attention(const AttentionInputs& inputs, const Weigh& weigh, const Visit& visit = {});

}  // namespace headroom::ops
