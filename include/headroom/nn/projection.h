// How queries, keys and values are made of tokens, and the layer's output of the heads' results.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/selection.h"

namespace headroom::nn {

// Letters: B batch, T queries, S sources, d d_model, H heads, G key/value heads, e d_head.
struct Heads {
  at::Tensor q;                          // [B, H, T, e]
  at::Tensor k, v;                       // [B, G, S, e]
  std::optional<Selection> destination;  // what the query side chose, for combine()
};

class Projection {
 public:
  virtual ~Projection() = default;
  // `x` [B, T, d] are the last T tokens of `source` [B, S, d] in self-attention; the same tensor without memory.
  virtual Heads project(const at::Tensor& x, const at::Tensor& source, const Context& context) const = 0;
  // `o` [B, H, T, e] to [B, T, d].
  virtual at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const = 0;
};

// How the projections begin, set by the kind of layer (dense: truncated normal; experts: normal).
struct ProjectionInit {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;
};

// The one that the options name. Throws MisuseError for one without an implementation.
std::unique_ptr<Projection> make_projection(const config::AttentionOptions& options, const ProjectionInit& init,
                                            const Builder& build);

}  // namespace headroom::nn
