// The options of multi-head latent attention and of tensor product attention.
#pragma once

#include <cstdint>

namespace headroom::config {

struct LatentOptions {
  std::int64_t kv_rank = 64;
  std::int64_t q_rank = 0;         // 0: queries are not compressed
  std::int64_t d_rotary = 0;       // 0: half of d_head
  std::int64_t d_value = 0;        // 0: d_head
  std::int64_t latent_groups = 1;  // latents of a token, each for an equal share of the heads
};

}  // namespace headroom::config
