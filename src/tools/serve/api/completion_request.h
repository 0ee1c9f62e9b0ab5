// What a client asks of POST /v1/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headroom::serve {

using TokenIds = std::vector<std::int64_t>;
using Prompt = std::variant<std::string, TokenIds>;

struct CompletionRequest {
  std::string model;  // empty: not named
  std::vector<Prompt> prompts;
  std::int64_t max_tokens = 16;  // of each answer
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;  // 0: all
  std::optional<std::int64_t> seed;
  std::int64_t n = 1;  // answers to each prompt; the i-th, from 0, has the seed `seed` + i
  std::vector<std::string> stop;
  bool echo = false;           // the prompt in front of each answer
  std::int64_t logprobs = -1;  // of so many of the likeliest tokens and the token itself; -1: none
  bool stream = false;
  bool include_usage = false;  // of a stream: a last event with the numbers of tokens
  bool routing = false;        // the experts that each token took

  bool details() const { return logprobs >= 0 || routing; }  // something about each token
};

// Checks each field's type and range; what only a model can tell (its name, its tokens, its context) is left to
// those who know it. Throws ApiError naming the field.
CompletionRequest parse_completion_request(std::string_view body);

}  // namespace headroom::serve
