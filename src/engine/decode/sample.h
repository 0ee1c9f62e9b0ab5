// Draws tokens from logits, and scores given tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/decode/engine.h"

namespace headroom::decode {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most likely token; ties go to the smallest id
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
};

// Throws UserError if an option is out of range. The message starts with `what`.
void check_sampling(const SampleOptions& options, std::string_view what);

// Draws a token from logits [V]. Computes in double and in a fixed order, so that a seed gives the same text with any
// number of threads. Throws Error if the logits are not finite.
std::int32_t sample(std::span<const float> logits, const SampleOptions& options, Random& random);

struct TokenScore {
  double logprob = 0.0;
  std::vector<Alternative> top;
};

// Returns the log-probability of `token` and the `count` most likely tokens at its position, from the log-probabilities
// `log_p` [V]. Ties go to `token`, then to the smaller id.
TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count);

}  // namespace headroom::decode
