// How a query scores the keys, and what it takes from their values.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/factory.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/position.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::nn {

// What a score knows of its call besides queries, keys and values.
struct ScoreCall {
  std::vector<at::Tensor> more_keys;        // own keys: components 2 .. R, [B, G, S, e] each
  std::int64_t first_index = 0;             // place of key 0 in the whole source (priors per key position)
  std::int64_t first_position = 0;          // and its position, for rotations
  ops::LinearState* linear = nullptr;       // decoding with a state of constant size
  std::optional<at::Tensor> valid_queries;  // [B, T] bool; without it: taken from the last T keys
};

class Score {
 public:
  virtual ~Score() = default;
  // `in` has q [B, H, T, e], k and v [B, G, S, e], the mask, relative positions and head maps; the score adds the rest.
  // The heads' results [B, H, T, e].
  virtual at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const = 0;
  // Whether it takes in.sequences without a look at their keys.
  virtual bool takes_sequences() const { return false; }
};

struct ScorePlace {
  std::int64_t n_positions = 0;     // source tokens at most: memory and context
  std::int64_t context_length = 0;  // queries of a whole sequence; 0: those of the call
  std::optional<Rotary> rotary;     // what queries and keys were turned by
};

using MakeScore = std::unique_ptr<Score> (*)(const config::AttentionOptions& options, const ScorePlace& place,
                                             const Builder& build);

// What several of them share.
// The learned scale [1], or undefined.
at::Tensor make_scale(const config::AttentionOptions& options, const Builder& build);
// Sets in.scale, or multiplies the queries by the learned scale.
void apply_scale(ops::AttentionInputs& in, const at::Tensor& learned, double fixed, const Context& context);
// `weights` [B, H, T, S] with probability `p` of each to be left out while training; the others weigh 1 / (1 - p) more.
at::Tensor drop_weights(const at::Tensor& weights, double p, const Context& context);
// Shows the observer the values of every pair that it wants; empty where it wants none.
ops::Visit pair_values(const Context& context);
// in's attention; by the reference where a value of every pair is wanted, by the observer or by `visit`, or weights are
// dropped. Throws UserError where the observer wants one or they are dropped and the context asks for the fused
// operators.
at::Tensor run_attention(const ops::AttentionInputs& in, double dropout, const Context& context,
                         const ops::Visit& visit = {});

}  // namespace headroom::nn
