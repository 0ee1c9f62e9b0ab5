// What a model makes of a token that is given: its log-probability, and the likeliest tokens in its place.
#pragma once

#include <cstdint>
#include <span>

#include "headroom/decode/engine.h"

namespace headroom::decode {

struct TokenScore {
  double logprob = 0.0;
  std::vector<Alternative> top;
};

// `log_p` [V]; the `count` likeliest, likeliest first, of equals the token itself first and then the smaller id.
TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count);

}  // namespace headroom::decode
