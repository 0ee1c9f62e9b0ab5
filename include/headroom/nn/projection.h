// How queries, keys and values are made of tokens, and the layer's output of the heads' results.
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

// Letters: B batch, T queries, S sources, d d_model, H heads, G key/value heads, e d_head.
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

struct Heads {
  at::Tensor q;                          // [B, H, T, e]; undefined without queries
  std::vector<at::Tensor> keys;          // one for each key projection, [B, G, S, e]; none without a source
  at::Tensor v;                          // [B, G, S, e]; undefined without a source
  std::optional<Selection> destination;  // what the query side chose, for combine()
};

class Projection {
 public:
  virtual ~Projection() = default;
  virtual Heads project(const ProjectionInput& input, const Context& context) const = 0;
  // `o` [B, H, T, e] to [B, T, d].
  virtual at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const = 0;
};

using MakeProjection = std::unique_ptr<Projection> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                       const Builder& build);

// Dense and expert heads, which gated heads are made of.
std::unique_ptr<Projection> make_head_projections(const config::AttentionOptions& options, const LayerInit& init,
                                                  const Builder& build);

}  // namespace headroom::nn
