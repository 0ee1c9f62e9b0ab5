// Drawing a token from logits, and scoring a given token.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/decode/engine.h"

namespace headroom::decode {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most likely token, ties: the smallest id
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
};

// Throws UserError, which begins with `what`, for options out of range.
void check_sampling(const SampleOptions& options, std::string_view what);

// A token drawn from logits [V], in double and in a fixed order, so a seed gives the same text with any number of
// threads. Throws Error if the logits are not finite.
std::int32_t sample(std::span<const float> logits, const SampleOptions& options, Random& random);

struct TokenScore {
  double logprob = 0.0;
  std::vector<Alternative> top;
};

// The log-probability of `token` and the `count` most likely tokens in its place, by `log_p` [V]; ties: `token` first,
// then the smaller id.
TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count);

}  // namespace headroom::decode
