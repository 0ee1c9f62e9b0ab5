// The options of projections that route tokens to experts or heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

enum class Gate { sigmoid, softmax_top_k, softmax, softmax_renormalised };
template <>
inline constexpr EnumNames kEnumNames<Gate> = {"sigmoid", "softmax_top_k", "softmax", "softmax_renormalised"};

// Used by experts, gated_heads and routed_heads; all but n_experts by routed_queries; top_k by shared_and_routed.
struct RoutingOptions {
  std::int64_t n_experts = 4;
  std::int64_t top_k = 2;
  Gate gate = Gate::sigmoid;
  double expert_dropout = 0.0;
};

// Used by experts. AttentionOptions::has_experts() also considers the projection.
struct ExpertOptions {
  std::vector<std::string> experts = {"v", "o"};
  bool shared_selection = false;
  double expert_entropy_coefficient = 0.0;

  bool has(char which) const { return std::ranges::find(experts, std::string(1, which)) != experts.end(); }
  bool on_source() const { return has('k') || has('v'); }
  bool on_destination() const { return has('q') || has('o'); }
  // Returns the number of selection matrices: one for each side that has a bank, or a single one if they are shared.
  std::int64_t n_selections() const {
    const int sides = (on_source() ? 1 : 0) + (on_destination() ? 1 : 0);
    return shared_selection ? std::min(sides, 1) : sides;
  }
};

// Used by routed_heads and routed_queries; switch_coefficient also by shared_and_routed.
struct RoutedHeadOptions {
  bool noisy_routing = false;
  bool output_bias = false;
  double switch_coefficient = 0.01;
  double switch_slots_coefficient = 0.0;
  double cv_coefficient = 0.0;
  double z_coefficient = 0.001;
  double entropy_coefficient = 0.0;
};

// Used by shared_and_routed.
struct SharedHeadOptions {
  std::int64_t shared_heads = 2;
};

}  // namespace headroom::config
