// The request body of POST /v1/completions.
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
  std::string model;  // empty if not given
  std::vector<Prompt> prompts;
  std::int64_t max_tokens = 16;  // per answer
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;  // 0: all
  std::optional<std::int64_t> seed;
  std::int64_t n = 1;  // answers per prompt; answer i (from 0) uses seed + i
  std::vector<std::string> stop;
  bool echo = false;           // each answer begins with the prompt
  std::int64_t logprobs = -1;  // report the N likeliest tokens at each position; -1: no log-probabilities
  bool stream = false;
  bool include_usage = false;  // a stream ends with an event that has the token counts
  bool routing = false;        // report the experts that each token was routed to

  bool details() const { return logprobs >= 0 || routing; }  // whether details are reported for each token
};

// Parses the body and checks the type and range of each field. Checks that depend on a model (its name, vocabulary,
// context) come later. Throws ApiError naming the field.
CompletionRequest parse_completion_request(std::string_view body);

}  // namespace headroom::serve
