// Position schemes: rotary, Transformer-XL relative, sinusoidal tables.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/config/attention_options.h"
#include "headroom/nn/attention_cache.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {

// Rotates the first `channels` of each head in pairs (c, c + channels/2) by the angle
// position * base^(-2c/channels) (RoPE; half of a head in SwitchHead's models).
struct Rotary {
  std::int64_t channels = 0;
  double base = 10000.0;
  // `x` [B, H, n, e]; row i has position first + i.
  at::Tensor operator()(const at::Tensor& x, std::int64_t first) const;
};

// p [n, width], p[i, 2a] = sin(position_i * base^(-2a/width)), p[i, 2a+1] = cos(same), for consecutive positions from
// `first` on.
at::Tensor sinusoids(std::int64_t first, std::int64_t n, std::int64_t width, double base, at::TensorOptions options);

// Transformer-XL's relative term: scores gain (q_i + v) . p(delta) W_pos, and the content term's queries become q_i +
// u. Routed heads share one W_pos, u and v.
class RelativePosition {
 public:
  // Parameters "w_pos" [d, H, e] (routed heads: [d, e]), and "u", "v" [H, e] (routed heads: [1, e]) with position_bias.
  RelativePosition(const config::AttentionOptions& options, std::int64_t d_model, std::int64_t n_layers,
                   const Builder& build);
  // With a cache, decoding: the projected offsets are made once and kept there.
  void add_to(ops::AttentionInputs& in, AttentionCache* cache, const Context& context) const;

 private:
  at::Tensor offsets(std::int64_t n_keys, std::int64_t n, const Context& context) const;

  config::AttentionOptions options_;
  std::int64_t d_model_;
  at::Tensor w_pos_, u_, v_;
};

}  // namespace headroom::nn
