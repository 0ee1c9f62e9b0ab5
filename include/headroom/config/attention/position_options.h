// The options of position schemes.
#pragma once

#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

// What a forget gate depends on.
enum class Forget { token, head };
template <>
inline constexpr EnumNames kEnumNames<Forget> = {"token", "head"};

struct PositionOptions {
  bool position_bias = false;  // relative
  double rope_fraction = 1.0;  // rope
  double rope_base = 10000.0;  // relative, rope, sinusoidal
  // forgetting
  Forget forget = Forget::token;
  std::vector<double> forget_times;  // with Forget::head: empty, or the shortest and the longest initial time in tokens
};

}  // namespace headroom::config
