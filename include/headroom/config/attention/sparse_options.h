// The options of heads that select their tokens.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom::config {

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
