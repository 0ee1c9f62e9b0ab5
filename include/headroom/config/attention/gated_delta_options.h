// The options of the gated delta rule.
#pragma once

#include <cstdint>

namespace headroom::config {

// Tokens per chunk of the fused versions, for memory estimates: ops::kDeltaChunk.
inline constexpr std::int64_t kDeltaChunk = 64;

struct GatedDeltaOptions {
  std::int64_t delta_key_heads = 0;  // 0: n_heads
  std::int64_t delta_d_value = 0;    // 0: d_head
  std::int64_t delta_conv_width = 4;
};

}  // namespace headroom::config
