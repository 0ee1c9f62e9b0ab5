// The one attention layer, assembled from parts: projection x score x composition x position x mask.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/attention_cache.h"
#include "headroom/nn/composition.h"
#include "headroom/nn/context.h"
#include "headroom/nn/output_gate.h"
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
  // Decoding: x is appended to what the cache holds; cross-attention keeps there what it makes of the source in its
  // first call and does not look at `source` in those that follow.
  AttentionCache* cache = nullptr;
};

class Attention {
 public:
  Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build);
  // [B, T, d_model] in the compute type. Throws Error for decoding in a layer that is not causal.
  at::Tensor operator()(const AttentionInput& input, const Context& context) const;

  // An empty cache for decoding one chunk of the context after its memory; of cross-attention: for one source.
  AttentionCache make_cache() const;

 private:
  // What is known of each source token: of this call's, or of all that a cache holds, oldest first.
  struct Seen {
    std::vector<at::Tensor> keys;        // of Heads
    at::Tensor v;                        // of Heads
    at::Tensor factors;                  // [B, 1, S, F] of the composition's key side; undefined without one
    at::Tensor marks;                    // [B, 1, S, F] of the position scheme; undefined: none
    std::vector<at::Tensor*> tensors();  // those that are there
  };

  Seen seen_of(const Heads& heads, const at::Tensor& source, const Context& context) const;
  // The source as cross-attention sees it, from the cache once it is there.
  static Seen source_of(Seen fresh, AttentionCache& cache);
  Heads project(const AttentionInput& input, const at::Tensor& source, const Context& context) const;
  void normalise_and_rotate(Heads& heads, const AttentionCache* cache, const Context& context) const;
  ScoreCall call_of(const AttentionInput& input) const;
  // `fresh` with what the cache holds of the past; notes in `call` where the first key stands.
  Seen look_back(Seen fresh, AttentionCache& cache, ScoreCall& call) const;
  ops::AttentionInputs assemble(const Heads& heads, const Seen& seen, const AttentionInput& input,
                                const Context& context) const;
  at::Tensor score(ops::AttentionInputs in, ScoreCall call, const AttentionInput& input, const Context& context) const;

  config::AttentionOptions options_;
  AttentionPlace place_;
  std::unique_ptr<Projection> projection_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<Score> score_;
  at::Tensor q_norm_, k_norm_;                // [e]
  std::unique_ptr<Composition> composition_;  // null: heads do not talk
  std::unique_ptr<OutputGate> gate_;          // null: none
};

}  // namespace headroom::nn
