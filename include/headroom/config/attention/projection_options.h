// The options of projections: latent and factored heads, dense heads, sparse heads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom::config {

// Used by latent and factored.
struct LatentOptions {
  std::int64_t kv_rank = 64;
  std::int64_t q_rank = 0;         // 0: queries are not compressed
  std::int64_t d_rotary = 0;       // 0: half of d_head
  std::int64_t d_value = 0;        // 0: d_head
  std::int64_t latent_groups = 1;  // latents of a token, each for an equal share of the heads
};

// Used by dense.
struct DenseOptions {
  bool output_bias = true;  // false: no bias of the output projection even if the other projections have biases
};

// Used by sparse_heads.
struct SparseHeadOptions {
  std::int64_t sparsity = 4;
  bool include_first = false;
  std::int64_t dense_heads = 0;

  // Returns the number of tokens that a head selects from a sequence.
  std::int64_t chosen(std::int64_t tokens) const {
    return std::min(tokens, std::max<std::int64_t>(2, tokens / sparsity));
  }
};

}  // namespace headroom::config
