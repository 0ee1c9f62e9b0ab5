// The options of position schemes.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

enum class RopeScaling { none, yarn, linear, llama3 };
template <>
inline constexpr EnumNames kEnumNames<RopeScaling> = {"none", "yarn", "linear", "llama3"};

// Slows rotations, for contexts longer than in pre-training.
struct RopeScalingOptions {
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0;                            // context length divided by rope_original_length
  std::int64_t rope_original_length = 0;               // context length in pre-training, in tokens
  double rope_beta_fast = 32.0, rope_beta_slow = 1.0;  // yarn
  bool rope_truncate = true;                           // yarn
  double rope_attention_factor = 0.0;                  // yarn: factor of cosines and sines; 0: 0.1 ln(rope_factor) + 1
  double rope_low_freq_factor = 1.0, rope_high_freq_factor = 4.0;  // llama3

  // Returns whether rope_original_length has an effect.
  bool has_original_length() const { return rope_scaling == RopeScaling::yarn || rope_scaling == RopeScaling::llama3; }

  friend auto operator<=>(const RopeScalingOptions&, const RopeScalingOptions&) = default;
};

// What a forget gate depends on.
enum class Forget { token, head };
template <>
inline constexpr EnumNames kEnumNames<Forget> = {"token", "head"};

struct PositionOptions : RopeScalingOptions {
  bool position_bias = false;  // relative
  double rope_fraction = 1.0;  // rope
  double rope_base = 10000.0;  // relative, rope, sinusoidal
  // forgetting
  Forget forget = Forget::token;
  std::vector<double> forget_times;  // with Forget::head: empty, or the shortest and the longest initial time in tokens
};

}  // namespace headroom::config
