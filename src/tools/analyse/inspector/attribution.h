// Attribution of an attention layer's output to source tokens, heads, value experts and output experts, for any
// combination of attention parts.
//
// Shapes: H heads (of routed heads: slots of a token, times P heads of an expert), T queries, S source tokens, V values
// of a source token in a head (1; with experts one per routed expert and one for the bias), O output matrices of a head
// (1; with experts one per routed expert), w width of a value, d d_model. With p the attention weights that multiply
// the values,
//   out_i = rest_i + sum_{h, j, v, o} p_hij (gate_hi * value_hjv) W_hio.
// The terms of the sum are the contributions, vectors of width d. The signed size of a contribution is its dot product
// with a direction. Along out_i / |out_i| the sizes sum to |out_i|; along the gradient of a logit they sum to the
// layer's contribution to that logit.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::inspector {

// The observed values of one layer, keyed by their name within the layer: "probs_composed", "select_out.index".
using LayerValues = std::map<std::string, at::Tensor, std::less<>>;

// Returns the values that attribute() needs from a layer with these options, as nn::Observer patterns within the
// layer's scope. Some are pair values [H, T, S].
std::vector<std::string> attributed_values(const config::AttentionOptions& options);

// Returns the number of experts that contributions name: those of a head, or those that tokens are routed to.
std::int64_t attributed_experts(const config::AttentionOptions& options);

struct LayerInfo {
  const config::AttentionOptions& options;
  const nn::Parameters& parameters;
  std::string scope;  // prefix of the layer's parameters: "layer3.attention."
  bool causal = true;
  std::int64_t window = 0;  // visible keys, including the query's own; 0: all
};

// The composition of heads at one stage: a sum of terms, each a matrix [from head, to head].
struct CompositionTerms {
  std::vector<std::string> names;
  std::vector<at::Tensor> maps;  // [H, H]; per query [T, 1, H, H]; per key [1, S, H, H]
};

struct Attribution {
  at::Tensor out;                    // [T, d]
  at::Tensor rest;                   // [T, d] the output bias, which belongs to no source token
  at::Tensor weights;                // [H, T, S]
  at::Tensor values;                 // [H, S, V, w]
  at::Tensor value_expert;           // [H, S, V] int64; -1: none
  at::Tensor matrices;               // [N, w, d] all output matrices
  at::Tensor matrix, matrix_weight;  // [H, T, O] indices into `matrices`, and their gates
  at::Tensor output_expert;          // [H, T, O] int64; -1: none
  at::Tensor gate;                   // [H, T, 1 or w]; undefined: 1
  bool exclusive = false;            // the head outputs lose their projection on the token's own value, before the gate

  // Composition and mixtures; not set or undefined if the layer has none.
  std::optional<CompositionTerms> pre, post;
  at::Tensor probs;             // [H, T, S] the weights before heads compose
  at::Tensor scores;            // [H, T, S] with `pre`: unmasked, before heads compose
  at::Tensor responsibilities;  // [R, H, T, S]
  bool is_normalised = true;    // true: the weights are a softmax of the scores; false: elementwise sigmoids
  bool causal = true;
  std::int64_t window = 0;
  bool has_mask = false;  // a formula hides keys, whose `probs` are 0

  std::int64_t n_queries() const { return weights.size(1); }
  std::int64_t n_sources() const { return weights.size(2); }
};

// Attributes the output for the first sequence of the batch. The values must be from a pass over a whole sequence (not
// decoding). Throws Error if one is missing.
Attribution attribute(const LayerValues& values, const LayerInfo& layer);

// Returns the sum of all contributions and the rest, [T, d] float64. Equals the layer's output up to rounding.
at::Tensor sum_of(const Attribution& a);
// Returns the norm of sum_of() minus the output, divided by the norm of the output, [T] float64.
at::Tensor residual_of(const Attribution& a);

// Maps `direction` [T, d] back through the output matrices and the gate: [H, T, O, w]. The size of a contribution is
// the dot product of the result with the contribution's value, times its weight.
at::Tensor readout(const Attribution& a, const at::Tensor& direction);
// Returns the signed sizes of the contributions to queries begin .. begin + count, [H, count, S, V, O]. In exclusive
// layers, the direction of a query token's own value is held constant.
at::Tensor sizes(const Attribution& a, const at::Tensor& readout, std::int64_t begin, std::int64_t count);

// Terms whose sum is the attention weights (or scores) of some queries.
struct Decomposition {
  std::string name;
  std::vector<std::string> terms;
  at::Tensor weights;  // [terms, H, count, S]
};

// The decompositions of the attention weights of queries begin .. begin + count that the layer has:
//   "after the softmax"   the terms of the map that composes the weights (DCMHA, Eq. 7)
//   "before the softmax"  the terms of the map that composes the scores, added one after the other: the change of the
//                         weights by each term, starting from weights of 0
//   "components"          the components of a mixture, by their responsibilities (Transformer-MGK, Eq. 7)
std::vector<Decomposition> decompose_weights(const Attribution& a, std::int64_t begin, std::int64_t count);
// Returns the terms of the composed scores (DCMHA, Eq. 7); empty if the layer does not compose scores.
Decomposition decompose_scores(const Attribution& a, std::int64_t begin, std::int64_t count);

}  // namespace headroom::inspector
