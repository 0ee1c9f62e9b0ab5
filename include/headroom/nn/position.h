// Position schemes: what they do inside an attention layer, and sinusoidal tables.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/attention_cache.h"
#include "headroom/nn/context.h"
#include "headroom/nn/factory.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {

// Rotates the first `channels` of each head in pairs (c, c + channels/2) by the angle
// position * base^(-2c/channels) (RoPE; half of a head in SwitchHead's models).
struct Rotary {
  std::int64_t channels = 0;
  double base = 10000.0;
  // `x` [B, H, n, e]; row i has position first + i.
  at::Tensor operator()(const at::Tensor& x, const c10::SymInt& first) const;
  // The same with a first position for each of x's rows, [B].
  at::Tensor turn_rows(const at::Tensor& x, at::IntArrayRef first) const;
};

// p [n, width], p[i, 2a] = sin(position_i * base^(-2a/width)), p[i, 2a+1] = cos(same), for consecutive positions from
// `first` on.
at::Tensor sinusoids(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base,
                     at::TensorOptions options);

// What a position scheme does inside a layer. Vectors that are added to the embeddings do nothing there.
class Position {
 public:
  virtual ~Position() = default;
  // What queries and keys are rotated by; nothing where they are not.
  virtual std::optional<Rotary> rotary() const = 0;
  // Whether its term goes by the order of the keys: where it does not, a decoding layer may hand them over in any.
  virtual bool orders_keys() const { return true; }
  // What its term needs to know of each source token x [B, n, d], [B, 1, n, F]: made once a token and kept while
  // decoding. By default nothing, undefined.
  virtual at::Tensor marks(const at::Tensor& /*x*/, const Context& /*context*/) const { return {}; }
  // Adds its term to the scores of queries and keys with these marks [B, 1, S, F]. Decoding, with a sequence's cache:
  // what depends on distances alone is made once and kept there.
  virtual void add_to(ops::AttentionInputs& in, const at::Tensor& marks, AttentionCache* cache,
                      const Context& context) const = 0;
};

using MakePosition = std::unique_ptr<Position> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                   const Builder& build);

}  // namespace headroom::nn
