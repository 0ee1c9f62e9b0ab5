// The options of position schemes.
#pragma once

namespace headroom::config {

struct PositionOptions {
  bool position_bias = false;  // relative
  double rope_fraction = 1.0;  // rope
  double rope_base = 10000.0;  // relative, rope, sinusoidal
};

}  // namespace headroom::config
