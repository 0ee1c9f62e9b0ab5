// How queries, keys and values are computed from tokens, and the layer's output from the heads' results.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/factory.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/selection.h"

namespace headroom::nn {

// Letters: B batch, T queries, S sources, d d_model, H heads, G key/value heads, e d_head, w width of a value.
struct ProjectionInput {
  at::Tensor x;                             // [B, T, d] queries; the last T tokens of `source` in self-attention;
                                            // undefined: keys and values alone
  at::Tensor source;                        // [B, S, d] keys; x itself without memory; undefined: queries alone
  at::Tensor source_value;                  // [B, S, d] values
  bool cross = false;                       // source is another sequence
  std::optional<at::Tensor> valid_queries;  // [B, T] bool: others are routed nowhere
  std::optional<at::Tensor> router_noise;   // [B, T, E] standard normal, instead of drawn numbers
  std::optional<at::Tensor> router_slots;   // [B, T, k] the chosen experts in the order that switch_slots counts
};

// In the order of a call: what project() makes, the layer then normalises and rotates q and keys, adds what a cache
// holds to keys and v, and hands all to expand().
struct Heads {
  at::Tensor q;                          // [B, H, T, e]; undefined without queries
  std::vector<at::Tensor> keys;          // one for each key projection, [B, G, S, e]; none without a source
  at::Tensor v;                          // [B, G, S, w]; undefined without a source, or where expand() makes it
  std::optional<Selection> destination;  // what the query side chose, for combine()
  at::Tensor gate;                       // the heads' results are multiplied by it, [B, H, T, 1 or w]; undefined: 1
  bool absorbed = false;                 // expand() left the values as they are kept: results() makes up for it
};

class Projection {
 public:
  virtual ~Projection() = default;
  // `keys` and `v` are what decoding keeps of each source token.
  virtual Heads project(const ProjectionInput& input, const Context& context) const = 0;
  // From what is kept of all visible tokens to the operands of attention: queries, keys and values. By default these
  // are what is kept.
  // `decoding`: it comes from a cache, so that work for every key would be done again for every query.
  virtual void expand(Heads& /*heads*/, bool /*decoding*/, const Context& /*context*/) const {}
  virtual bool expands() const { return false; }
  // The heads' results [B, H, T, w], of the sums over the values that expand() gave.
  virtual at::Tensor results(const at::Tensor& o, const Heads& /*heads*/, const Context& /*context*/) const {
    return o;
  }
  // Those, after the gate, to [B, T, d].
  virtual at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const = 0;
};

using MakeProjection = std::unique_ptr<Projection> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                       const Builder& build);

// Dense and expert heads, on which gated heads are built.
std::unique_ptr<Projection> make_head_projections(const config::AttentionOptions& options, const LayerInit& init,
                                                  const Builder& build);

}  // namespace headroom::nn
