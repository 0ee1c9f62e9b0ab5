// Drawing a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "foundation/core/random.h"

namespace headroom::decode {

struct SampleOptions {
  double temperature = 1.0;  // 0: the likeliest, of equals the one with the smallest id
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
};

// Throws UserError, beginning with `what`, for what is out of range.
void check_sampling(const SampleOptions& options, std::string_view what);

// In double and in one order, so that a seed gives the same text with any number of threads. Throws Error when the
// logits are not finite.
std::int32_t sample(std::span<const float> logits, const SampleOptions& options, Random& random);

}  // namespace headroom::decode
