// Where an attention layer's output comes from: signed contributions of source tokens, value experts, attention
// matrices and output experts that add up to it, whatever parts the layer is made of.
//
// Letters: H attention matrices (of routed heads: the slots of a token), T queries, S source tokens, V values of a
// source token in a head (one; with experts one of each that it takes, and one of the bias), O ways out of a head (one;
// with experts one of each that the query takes), w width of a value, d d_model. With p the weights that meet the
// values,
//   out_i = rest_i + sum_{h, j, v, o} p_hij (gate_hi * value_hjv) W_hio.
// The terms of the sum are the contributions. They are vectors; a contribution's signed size along a direction is its
// dot product with that direction. Along out_i / |out_i| the sizes add up to |out_i|; along the derivative of a logit
// they add up to the layer's share of that logit.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::inspect {

// What is observed of one layer, by the last part of its name: "probs_composed", "select_out.index".
using LayerValues = std::map<std::string, at::Tensor, std::less<>>;

// The values that attribute() reads from a layer with these options, as patterns of nn::Observer after the layer's
// scope. Some of them are values of every pair, [H, T, S].
std::vector<std::string> attributed_values(const config::AttentionOptions& options);

struct AttentionFacts {
  const config::AttentionOptions& options;
  const nn::Parameters& parameters;
  std::string scope;  // "layer3.attention.": of the layer's parameters
  bool causal = true;
  std::int64_t window = 0;  // keys including self; 0: all
};

// How heads compose at one stage, as matrices from head, to head; a stage's terms are added up.
struct ComposedBy {
  std::vector<std::string> names;
  std::vector<at::Tensor> maps;  // [H, H], or with a place in front: [T, 1, H, H] of the query, [1, S, H, H] of the key
};

struct Attribution {
  at::Tensor out;                    // [T, d]
  at::Tensor rest;                   // [T, d] what no source token has a part in: the bias of the output
  at::Tensor weights;                // [H, T, S]
  at::Tensor values;                 // [H, S, V, w]
  at::Tensor value_expert;           // [H, S, V] int64; -1: no expert's
  at::Tensor matrices;               // [N, w, d] all output matrices
  at::Tensor matrix, matrix_weight;  // [H, T, O] which of them a head goes through, and by how much
  at::Tensor output_expert;          // [H, T, O] int64; -1: no expert's
  at::Tensor gate;                   // [H, T, 1 or w]; undefined: 1

  // Composition and mixtures; undefined and empty where there are none.
  std::optional<ComposedBy> pre, post;
  at::Tensor probs;             // [H, T, S] the weights before heads compose
  at::Tensor scores;            // [H, T, S] with pre: not masked, before heads compose
  at::Tensor responsibilities;  // [R, H, T, S]
  bool is_normalised = true;    // the weights are a softmax of the scores, else a sigmoid of each
  bool causal = true;
  std::int64_t window = 0;

  std::int64_t n_queries() const { return weights.size(1); }
  std::int64_t n_sources() const { return weights.size(2); }
};

// Of the first row of what was observed, which must be a whole sequence (not decoding). Throws Error naming the value
// that is missing.
Attribution attribute(const LayerValues& values, const AttentionFacts& facts);

// The sum of all contributions and the rest, [T, d] float64: the layer's output but for rounding.
at::Tensor sum_of(const Attribution& a);
// How far that is from the output, as a share of the output's length, [T] float64.
at::Tensor residual_of(const Attribution& a);

// Each query's direction in the values of a head, [H, T, O, w]: what a contribution's value is multiplied by to give
// its size along `direction` [T, d].
at::Tensor readout(const Attribution& a, const at::Tensor& direction);
// Signed sizes of the contributions to `count` queries from `begin` on, [H, count, S, V, O].
at::Tensor sizes(const Attribution& a, const at::Tensor& readout, std::int64_t begin, std::int64_t count);

// Weights that add up to the weights of some queries: what a contribution consists of, in the same proportions.
struct Split {
  std::string name;
  std::vector<std::string> terms;
  at::Tensor weights;  // [terms, H, count, S]
};

// How those of `count` queries from `begin` on come about, as far as the layer has it:
//   "after the softmax"   the terms of the map that composes the weights (DCMHA Eq. 7): it is linear, so that each has
//                         its part
//   "before the softmax"  the terms of the map that composes the scores, added one after the other in their order: what
//                         each changes of the weights, the first beginning with none
//   "components"          a mixture's components, by their shares of each weight (Transformer-MGK Eq. 7)
std::vector<Split> split_weights(const Attribution& a, std::int64_t begin, std::int64_t count);
// The terms of the composed scores themselves [terms, H, count, S], which add up to them: DCMHA's Eq. 7.
Split split_scores(const Attribution& a, std::int64_t begin, std::int64_t count);

}  // namespace headroom::inspect
