// The attention layer, assembled from parts: projection x score x composition x position x output gate, and a mask.
//
// Letters as in headroom/nn/attention_parts.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headroom/nn/attention_parts.h"

namespace headroom::nn {

// The layer's place in a model.
struct AttentionPlace {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;  // scales the initialisation
  std::int64_t layer = 0;     // index of the layer in its stack
  bool causal = true;
  bool cross = false;               // keys and values come from another sequence
  std::int64_t window = 0;          // number of visible keys, including the query's own; 0: all
  std::int64_t context_length = 0;  // queries in a whole sequence
  std::int64_t memory_length = 0;   // memory tokens before the queries
};

struct AttentionInput {
  at::Tensor x;                             // [B, T, d] queries, normalised
  at::Tensor source;                        // [B, S, d] keys and values, ending with x; undefined: x itself
  at::Tensor source_value;                  // [B, S, d] values; undefined: source
  std::optional<at::Tensor> valid_keys;     // [B, S] bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool; other queries are routed to no head and output 0
  std::optional<at::Tensor> router_noise;   // see ProjectionInput
  std::optional<at::Tensor> router_slots;   // see ProjectionInput
  // Decoding: one cache per row; the row's tokens continue the cached sequence. Cross-attention reads what
  // read_source() stored in the caches and ignores `source` and `valid_keys`.
  std::span<AttentionCache* const> caches;
  // Rotated keys, and values, for layers that share them: one entry for the batch, or one per cache. Layers with
  // options.share_kv read the entries and get the caches of the layer that wrote them; other layers overwrite the
  // entries. Null: no layer shares.
  std::vector<ops::SequenceKeys>* shared_keys = nullptr;

  // Returns the shared keys of one cache; null if no layer shares.
  ops::SequenceKeys* shared_entry(std::int64_t row) const {
    return shared_keys == nullptr ? nullptr : &shared_keys->at(static_cast<std::size_t>(row));
  }
};

class Attention {
 public:
  // Throws UserError for cross-attention with positions that depend on distances, exclusive head outputs, a causal mask
  // or a window, and for positions that need a causal mask without one.
  Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build);
  // Returns [B, T, d] in the compute type. Throws Error if a layer that is not causal is given caches.
  at::Tensor operator()(const AttentionInput& input, const Context& context) const;

  // Returns an empty cache for decoding one sequence, with room for memory and one chunk of context_length tokens.
  AttentionCache make_cache() const;
  // Cross-attention: stores the keys and values of a source [1, S, d] in the cache; `valid` is [1, S] bool, default:
  // all.
  void read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, AttentionCache& cache,
                   const Context& context) const;

 private:
  // The cached form of the source tokens: of this call's tokens, or of all tokens in a cache, oldest first.
  struct KeysValues {
    std::vector<at::Tensor> keys;        // see Heads
    at::Tensor v;                        // see Heads
    at::Tensor factors;                  // [B, 1, S, F] key factors of the composition; undefined without one
    at::Tensor features;                 // [B, 1, S, F] key features of the position scheme; undefined: none
    at::Tensor score_features;           // [B, 1, S, F] key features of the score; undefined: none
    std::vector<at::Tensor*> tensors();  // all defined tensors
  };

  // Queries that share keys: all queries of a call, or one row of a decoding batch.
  struct Queries {
    at::Tensor x, q;  // [B, T, d], [B, H, T, e]
    std::optional<at::Tensor> valid_keys, valid_queries;
    at::Tensor key_bias;  // see Heads
    AttentionCache* cache = nullptr;
    ops::SequenceKeys* shared_keys = nullptr;  // receives the keys and values; null: not shared
  };

  static KeysValues cached_source(AttentionCache& cache);
  Heads project(const AttentionInput& input, const at::Tensor& source, const Context& context) const;
  KeysValues keys_values(const Heads& heads, const at::Tensor& source, const Context& context) const;
  // `before`: position of the first query within the keys; not used with caches.
  void normalise_and_rotate(Heads& heads, const c10::SymInt& before, std::span<AttentionCache* const> caches,
                            const Context& context) const;
  // Multiplies head outputs [B, H, T, w] by the gates, after removing the query's own value from them if so configured.
  at::Tensor gated(at::Tensor o, Heads& heads, const AttentionInput& input, const Context& context) const;
  // The three functions below return head outputs [B, H, T, w].
  at::Tensor attend(const Queries& queries, KeysValues tokens, const Context& context) const;
  std::pair<at::Tensor, at::Tensor> shared_of_row(const AttentionInput& input, std::int64_t row) const;
  at::Tensor attend_by_row(const AttentionInput& input, const Heads& heads, const Context& context) const;
  at::Tensor attend_batched(const AttentionInput& input, const Heads& heads, const Context& context) const;
  // Whether one operator call can compute one token for every row: the rows may differ only in keys and values.
  bool can_batch_rows(const Heads& heads, const Context& context) const;
  ScoreCall score_call(const Queries& queries) const;
  bool shares() const { return options_.share_kv > 0 && !place_.cross; }  // uses another layer's keys
  // Appends `tokens` to the cache, unless they are shared and already cached, and returns all cached tokens; sets the
  // position of the first key in `call`.
  KeysValues append_to_cache(KeysValues tokens, AttentionCache& cache, ScoreCall& call) const;
  // `operands`: queries, keys and values after expand().
  ops::AttentionInputs operator_inputs(const Queries& queries, const Heads& operands, const KeysValues& tokens,
                                       const Context& context) const;

  config::AttentionOptions options_;
  AttentionPlace place_;
  std::unique_ptr<Projection> projection_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<Score> score_;
  at::Tensor q_norm_, k_norm_;                // [e]
  std::unique_ptr<Composition> composition_;  // null: heads are not composed
  std::unique_ptr<OutputGate> gate_;          // null: none
};

}  // namespace headroom::nn
