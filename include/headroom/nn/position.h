// Position schemes: rotary, Transformer-XL relative, sinusoidal tables.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

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

}  // namespace headroom::nn
