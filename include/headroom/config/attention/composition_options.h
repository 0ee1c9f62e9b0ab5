// The options of compositions: maps between heads, differential attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

enum class ComposeActivation { gelu, gelu_tanh };
template <>
inline constexpr EnumNames kEnumNames<ComposeActivation> = {"gelu", "gelu_tanh"};

struct CompositionOptions {
  std::vector<std::string> compose = {"pre", "post"};
  std::vector<std::string> compose_low_rank = {"query", "key"};
  std::vector<std::string> compose_gates = {"query", "key"};
  bool compose_skip = true;
  bool compose_static = false;
  std::int64_t compose_rank = 2;
  std::int64_t compose_groups = 1;
  ComposeActivation compose_activation = ComposeActivation::gelu;

  // Returns whether heads are composed at `stage`, "pre" or "post".
  bool composes(std::string_view stage) const { return std::ranges::find(compose, stage) != compose.end(); }
  // These functions return whether `side`, "query" or "key", has low-rank maps or gates.
  bool has_low_rank(std::string_view side) const {
    return std::ranges::find(compose_low_rank, side) != compose_low_rank.end();
  }
  bool has_gates(std::string_view side) const { return std::ranges::find(compose_gates, side) != compose_gates.end(); }
};

// Used by differential.
struct DifferentialOptions {
  std::int64_t differential_version = 2;  // 1: the 2024 paper, with values twice as wide; 2: its 2026 successor
  double head_norm_epsilon = 1e-5;        // version 1: epsilon of the norm of each head's output

  std::int64_t keys_per_head() const { return differential_version == 1 ? 2 : 1; }
  std::int64_t value_factor() const { return differential_version == 1 ? 2 : 1; }
};

}  // namespace headroom::config
