// The one attention layer, assembled from parts: projection x score x composition x position x mask.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/attention_cache.h"
#include "headroom/nn/composition.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/position.h"
#include "headroom/nn/projection.h"
#include "headroom/nn/score.h"

namespace headroom::nn {

// What the layer takes from its place in a model.
struct AttentionPlace {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;  // scales the initialisation
  bool causal = true;
  bool cross = false;               // keys and values come from another sequence
  std::int64_t window = 0;          // keys including self, 0 = all
  std::int64_t context_length = 0;  // queries of a whole sequence
  std::int64_t memory_length = 0;   // tokens of memory before them
};

struct AttentionInput {
  at::Tensor x;                             // [B, T, d] queries, after the norm
  at::Tensor source;                        // [B, S, d] keys and values, ending with x; undefined: x itself
  at::Tensor source_value;                  // [B, S, d] values, where they are not made from source
  std::optional<at::Tensor> valid_keys;     // [B, S] bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool: routed heads route others nowhere, their output is 0
  std::optional<at::Tensor> router_noise;   // see ProjectionInput
  std::optional<at::Tensor> router_slots;   // see ProjectionInput
  AttentionCache* cache = nullptr;          // decoding: x is appended to what the cache holds
};

class Attention {
 public:
  Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build);
  // [B, T, d_model] in the compute type. Throws Error for decoding in a layer that is not causal.
  at::Tensor operator()(const AttentionInput& input, const Context& context) const;

  // An empty cache for decoding one chunk of the context after its memory.
  AttentionCache make_cache() const;

 private:
  void normalise_and_rotate(Heads& heads, const AttentionInput& input, const Context& context) const;

  config::AttentionOptions options_;
  AttentionPlace place_;
  std::unique_ptr<Projection> projection_;
  std::optional<RelativePosition> relative_;
  std::unique_ptr<Score> score_;
  at::Tensor q_norm_, k_norm_;  // [e]
  std::optional<Rotary> rotary_;
  std::optional<Composition> composition_;
};

}  // namespace headroom::nn
