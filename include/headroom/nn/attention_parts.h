// The five parts of an attention layer as interfaces, and the registry in which their layers are found by name.
//
// A layer is projection x score x composition x position x output gate (headroom/nn/attention.h). Each part has a class
// without tensors in headroom/config/attention_part.h and a class here, under the same name. All functions are const
// and thread-safe; parameters are made in the constructor.
//
// Letters: B batch, T queries, S source tokens, d d_model, H heads, G key/value heads, e d_head, w value width,
// F features of a token.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_cache.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/routing.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/head_map.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::nn {

// Projection: maps tokens to queries, keys and values, and head outputs to the layer's output.

struct ProjectionInput {
  at::Tensor x;                             // [B, T, d] queries; the last T tokens of `source` in self-attention;
                                            // undefined: only keys and values are projected
  at::Tensor source;                        // [B, S, d] keys. Undefined: only queries are projected
  at::Tensor source_value;                  // [B, S, d] values
  bool cross = false;                       // source is another sequence
  std::optional<at::Tensor> valid_keys;     // [B, S] bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool: other tokens are routed to no head
  std::optional<at::Tensor> router_noise;   // [B, T, E] standard normal; replaces the drawn noise
  std::optional<at::Tensor> router_slots;   // [B, T, k] routed experts in the slot order of switch_slots
};

// Filled by project(). The layer then normalises and rotates q and keys, prepends the cached keys and values, and calls
// expand().
struct Heads {
  at::Tensor q;                          // [B, H, T, e]; undefined without queries
  std::vector<at::Tensor> keys;          // one per key projection, [B, G, S, e]; empty without a source
  at::Tensor v;                          // [B, G, S, w]; undefined without a source or if expand() computes it
  std::optional<Routing> query_routing;  // routing of the query tokens, for combine()
  at::Tensor gate;                       // [B, H, T, 1 or w], multiplies the head outputs; undefined: 1
  at::Tensor key_bias;                   // [B, H, 1, S], added to the scores of this call's tokens; undefined: 0
  bool absorbed = false;                 // expand() folded a projection into q; results() applies the value projection
};

class Projection {
 public:
  virtual ~Projection() = default;
  // Returns queries, and in `keys` and `v` the tensors that a decoding cache stores per source token.
  virtual Heads project(const ProjectionInput& input, const Context& context) const = 0;
  // Converts the cached form of all visible tokens to the operands of attention; the default keeps them unchanged.
  // `decoding`: the keys come from a cache, so per-key work would be repeated for every query.
  virtual void expand(Heads& /*heads*/, bool /*decoding*/, const Context& /*context*/) const {}
  virtual bool expands() const { return false; }
  // Returns head outputs [B, H, T, w] for the weighted sums of the values from expand().
  virtual at::Tensor results(const at::Tensor& o, const Heads& /*heads*/, const Context& /*context*/) const {
    return o;
  }
  // Projects gated head outputs [B, H, T, w] to [B, T, d].
  virtual at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const = 0;
};

// Position: rotations and relative terms inside a layer. Schemes that add position vectors to the embeddings do nothing
// here.

// RoPE: rotates the first `channels` of each head in pairs (c, c + channels/2) by the angle position * f_c,
// f_c = base^(-2c/channels). Scaling by the factor s slows rotations; linear: f_c' = f_c / s. LLaMA 3.1 with the
// original length L:
//   f_c' = f_c r_c + f_c (1 - r_c) / s,  r_c = (L f_c / (2 pi) - low) / (high - low) within 0..1,
//   low, high = rope_low_freq_factor, rope_high_freq_factor
// YaRN (Peng et al. 2023) with n = channels:
//   f_c' = f_c (1 - r_c) + f_c r_c / s,  r_c = (c - low) / (high - low) within 0..1,
//   low, high = n ln(L / (2 pi beta)) / (2 ln base) for beta_fast and beta_slow, rounded down and up, within 0..n - 1
// and cosines and sines are multiplied by the attention factor.
struct Rotary {
  std::int64_t channels = 0;
  double base = 10000.0;
  config::RopeScalingOptions scaling = {};
  // Rotates `x` [B, H, n, e]; row i of n has position first + i.
  at::Tensor operator()(const at::Tensor& x, const c10::SymInt& first) const;
  // Like operator(), with a separate first position for each of the B rows.
  at::Tensor rotate_rows(const at::Tensor& x, at::IntArrayRef first) const;
};

// Returns [n, width] for n positions from `first`: column 2a is sin(position * base^(-2a/width)), column 2a + 1 the
// cosine.
at::Tensor sinusoids(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base,
                     at::TensorOptions options);

class Position {
 public:
  virtual ~Position() = default;
  // Returns the rotation of queries and keys; nullopt: none.
  virtual std::optional<Rotary> rotary() const = 0;
  // If false, the layer may pass cached keys in any order.
  virtual bool depends_on_key_order() const { return true; }
  // Returns the features of the source tokens x [B, n, d] for add_to(), [B, 1, n, F]; undefined: none. Computed once
  // per token and cached during decoding.
  virtual at::Tensor key_features(const at::Tensor& /*x*/, const Context& /*context*/) const { return {}; }
  // Whether add_to() supports `in.sequences` (separate keys and values per row): it needs no key features, and adds at
  // most relative positions.
  virtual bool supports_sequences() const { return true; }
  // Adds the position term to `in`; `key_features` is [B, 1, S, F]. During decoding, `cache` may store values that
  // depend on distances only.
  virtual void add_to(ops::AttentionInputs& in, const at::Tensor& key_features, AttentionCache* cache,
                      const Context& context) const = 0;
};

// Score: the weight that a query gives each key, and the weighted sum of the values.

struct ScoreCall {
  std::vector<at::Tensor> more_keys;         // a mixture's further keys: components 2 .. R, [B, G, S, e] each; or what
                                             // prepare() added
  std::int64_t first_index = 0;              // index of key 0 in the whole source, for per-position priors
  std::int64_t first_position = 0;           // position of key 0, for rotations
  std::vector<at::Tensor>* state = nullptr;  // decoding with a constant-size state: AttentionCache::state()
  std::optional<at::Tensor> valid_queries;   // [B, T] bool; default: the last T of the valid keys
  at::Tensor features;                       // key_features() of the source, [B, 1, S, F]; undefined: none
};

// The tokens that a layer reads: all tokens of a call, or with caches the next tokens of each row.
struct ScoreTokens {
  const at::Tensor& x;                      // [B, T, d]
  const std::optional<at::Tensor>& valid;   // [B, T] bool
  std::span<AttentionCache* const> caches;  // one per row; empty: a whole sequence
};

class Score {
 public:
  virtual ~Score() = default;
  // Changes queries, keys and values before they are rotated and cached. May add tensors [B, *, T, *] to `heads.keys`,
  // which operator() gets as ScoreCall::more_keys.
  virtual void prepare(Heads& /*heads*/, const ScoreTokens& /*tokens*/, const Context& /*context*/) const {}
  // Returns the features of the source tokens x [B, n, d] for operator(), [B, 1, n, F]; undefined: none. Computed once
  // per token and cached during decoding.
  virtual at::Tensor key_features(const at::Tensor& /*x*/, const Context& /*context*/) const { return {}; }
  // Returns the weighted sums of the values, [B, H, T, w]. `in` has q [B, H, T, e], k and v [B, G, S, e], mask,
  // relative positions and head maps; the score sets the other fields.
  virtual at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const = 0;
  // Returns a gate [B, H, T, w] on the head outputs o, for the queries x [B, T, d]; undefined: none.
  virtual at::Tensor gate(const at::Tensor& /*o*/, const at::Tensor& /*x*/, const Context& /*context*/) const {
    return {};
  }
  // Whether `in.sequences` (separate keys and values per row) is supported instead of k and v.
  virtual bool supports_sequences() const { return false; }
};

struct ScorePlace {
  std::int64_t n_positions = 0;     // maximum number of source tokens: memory and context
  std::int64_t context_length = 0;  // queries in a whole sequence; 0: the call's number of queries
  std::optional<Rotary> rotary;     // rotation of queries and keys
  LayerInit init;
};

// Helpers for scores. make_scale() returns the learned scale [1]; undefined if the scale is fixed.
at::Tensor make_scale(const config::AttentionOptions& options, const Builder& build);
// Sets in.scale to `fixed`, or multiplies the queries by the learned scale.
void apply_scale(ops::AttentionInputs& in, const at::Tensor& learned, double fixed, const Context& context);
// Applies dropout with probability p to weights [B, H, T, S] in training.
at::Tensor drop_weights(const at::Tensor& weights, double p, const Context& context);
// Returns a function that passes scores and weights to the observer; empty if the observer wants none of them.
ops::Visit pair_values(const Context& context);
// Computes the attention of `in`. Uses the reference if the observer or `visit` wants scores or weights of pairs, or if
// weights are dropped; throws UserError if the context requests the fused operator in that case.
at::Tensor run_attention(const ops::AttentionInputs& in, double dropout, const Context& context,
                         const ops::Visit& visit = {});

// Composition: maps across heads before and after the softmax, fixed or computed from the tokens (DCMHA Eq. 3-8,
// App. D), or heads that subtract a second attention matrix from their first (differential attention).

class Composition {
 public:
  virtual ~Composition() = default;

  // Returns the key-side factors [B, 1, n, F]; computed once per token and cached during decoding. Undefined: none.
  virtual at::Tensor key_factors(const at::Tensor& /*source*/, const Context& /*context*/) const { return {}; }

  struct Maps {
    std::optional<ops::HeadMap> pre, post;
    std::optional<at::Tensor> difference;  // factor of each head's second map, see ops::AttentionInputs
  };
  // Returns the maps for queries x [B, T, d] and for keys with the factors [B, 1, S, F].
  virtual Maps maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const = 0;
  // Whether the maps support separate keys and values per row (ops::AttentionInputs::sequences).
  virtual bool supports_sequences() const { return false; }
  // Returns the head outputs [B, H, T, w] for the composed heads' weighted sums of the values.
  virtual at::Tensor results(const at::Tensor& o, const Context& /*context*/) const { return o; }
};

enum class MapSide { query, key };
// Returns the sum of the fixed map, the identity and one side's factors as matrices [from head, to head]: [B, n,
// stages, H, H], n = T for the query side, S for the key side.
at::Tensor head_matrices(const Composition::Maps& maps, MapSide side, std::int64_t n_heads);
// Returns one side's low-rank map and gates as separate matrices, without the fixed map and the identity: [B, n,
// stages, 2, H, H]; 0 where the side lacks one.
at::Tensor head_terms(const Composition::Maps& maps, MapSide side, std::int64_t n_heads);

// Output gate: multiplies the head outputs before the output projection, after the exclusion of a token's own value.

// Returns the head outputs [B, H, T, w] without their projection on the values v [B, G, T, w] of the same tokens.
at::Tensor exclude_own_values(const at::Tensor& o, const at::Tensor& v, const Context& context);

class OutputGate {
 public:
  virtual ~OutputGate() = default;
  // Returns the gates [B, H, T, 1 or w] for the queries x [B, T, d], in the compute type.
  virtual at::Tensor operator()(const at::Tensor& x, const Heads& heads, const Context& context) const = 0;
};

// Registry. A part's file registers its layer at namespace scope:
//   const Factory<MakeScore> kDotScore("dot", make_part<Score, DotScore>);

using MakeProjection = std::unique_ptr<Projection> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                       const Builder& build);
using MakePosition = std::unique_ptr<Position> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                   const Builder& build);
using MakeScore = std::unique_ptr<Score> (*)(const config::AttentionOptions& options, const ScorePlace& place,
                                             const Builder& build);
// Returns null if heads are not composed.
using MakeComposition = std::unique_ptr<Composition> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                         const Builder& build);
// Returns null without a gate.
using MakeOutputGate = std::unique_ptr<OutputGate> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                       const Builder& build);

// One table per Make type above. Instantiated in attention.cc.
template <class Make>
std::map<std::string, Make, std::less<>>& factories();

template <class Make>
class Factory {
 public:
  Factory(std::string_view part, Make make) { factories<Make>().emplace(part, make); }
};

// Constructs a layer with the arguments of its Make type.
template <class Part, class Layer, class... Arguments>
std::unique_ptr<Part> make_part(Arguments... arguments) {
  return std::make_unique<Layer>(arguments...);
}

// Returns the factory of a part. Throws Error for a part without a layer.
template <class Make>
Make factory_of(std::string_view part) {
  const auto found = factories<Make>().find(part);
  if (found == factories<Make>().end()) {
    fail("model.attention: \"{}\" has no layer", part);
  }
  return found->second;
}

}  // namespace headroom::nn
