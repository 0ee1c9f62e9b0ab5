// The one attention layer, assembled from parts: projection x score x composition x position x mask.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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
  // Decoding: one for each row, whose sequence continues with the row's tokens; each row sees its own. Cross-attention
  // reads what read_source() left there, and neither `source` nor `valid_keys`.
  std::span<AttentionCache* const> caches;
};

class Attention {
 public:
  Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build);
  // [B, T, d_model] in the compute type. Throws Error for decoding in a layer that is not causal.
  at::Tensor operator()(const AttentionInput& input, const Context& context) const;

  // An empty cache for decoding one sequence: one chunk of the context after its memory; of cross-attention: one
  // source.
  AttentionCache make_cache() const;
  // Cross-attention: projects a source [1, S, d] into the cache; `valid` [1, S] bool; without it: all tokens.
  void read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, AttentionCache& cache,
                   const Context& context) const;

 private:
  // What is known of each source token: of this call's, or of all that a cache holds, oldest first.
  struct Seen {
    std::vector<at::Tensor> keys;        // of Heads
    at::Tensor v;                        // of Heads
    at::Tensor factors;                  // [B, 1, S, F] of the composition's key side; undefined without one
    at::Tensor marks;                    // [B, 1, S, F] of the position scheme; undefined: none
    std::vector<at::Tensor*> tensors();  // those that are there
  };

  // Queries with the same keys: those of a whole call, or of a row whose sequence has a cache.
  struct Queries {
    at::Tensor x, q;  // [B, T, d], [B, H, T, e]
    std::optional<at::Tensor> valid_keys, valid_queries;
    AttentionCache* cache = nullptr;
  };

  static Seen source_of(AttentionCache& cache);
  Heads project(const AttentionInput& input, const at::Tensor& source, const Context& context) const;
  Seen seen_of(const Heads& heads, const at::Tensor& source, const Context& context) const;
  void normalise_and_rotate(Heads& heads, std::span<AttentionCache* const> caches, const Context& context) const;
  // Both: the heads' results [B, H, T, w].
  at::Tensor attend(const Queries& queries, Seen seen, const Context& context) const;
  at::Tensor attend_by_row(const AttentionInput& input, const Heads& heads, const Context& context) const;
  // One token of each row, of layers whose rows differ in keys and values alone: one call for all of them.
  bool rows_differ_in_keys(const AttentionInput& input, const Heads& heads, const Context& context) const;
  at::Tensor attend_sequences(const AttentionInput& input, const Heads& heads, const Context& context) const;
  ScoreCall call_of(const Queries& queries) const;
  // `fresh` with what the cache holds of the past; notes in `call` the first key's position.
  Seen look_back(Seen fresh, AttentionCache& cache, ScoreCall& call) const;
  // `met`: the operands, queries, keys and values.
  ops::AttentionInputs assemble(const Queries& queries, const Heads& met, const Seen& seen,
                                const Context& context) const;

  config::AttentionOptions options_;
  AttentionPlace place_;
  std::unique_ptr<Projection> projection_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<Score> score_;
  at::Tensor q_norm_, k_norm_;                // [e]
  std::unique_ptr<Composition> composition_;  // null: heads do not mix
  std::unique_ptr<OutputGate> gate_;          // null: none
};

}  // namespace headroom::nn
