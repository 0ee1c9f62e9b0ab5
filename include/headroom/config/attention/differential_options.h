// The options of differential attention.
#pragma once

#include <cstdint>

namespace headroom::config {

struct DifferentialOptions {
  std::int64_t differential_version = 2;  // 1: the paper of 2024, with values twice as wide; 2: its successor of 2026
  double head_norm_epsilon = 1e-5;        // version 1: of the norm of each head's output

  std::int64_t keys_per_head() const { return differential_version == 1 ? 2 : 1; }
  std::int64_t value_factor() const { return differential_version == 1 ? 2 : 1; }
};

}  // namespace headroom::config
