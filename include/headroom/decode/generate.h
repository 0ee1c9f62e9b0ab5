// Continues a text with the incremental cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::decode {

struct GenerateOptions {
  std::int64_t tokens = 100;  // to add
  double temperature = 1.0;   // 0: always the likeliest
  std::int64_t top_k = 0;     // keep only the k likeliest; 0: all
  double top_p = 1.0;         // keep the fewest likeliest that reach this probability
  std::uint64_t seed = 1;
  nn::Context context;
  std::function<void(std::string_view)> on_text;  // called as text becomes available, whole code points only
};

struct Generation {
  std::string text;  // the continuation, without the prompt; valid UTF-8
  std::int64_t tokens = 0;
  double tokens_per_second = 0.0;  // of the continuation; reading the prompt is not counted
  std::int64_t cache_numbers = 0;  // kept of the text while it was continued
};

// Throws UserError where no model can continue the prompt: it is not UTF-8, or holds what this tokenizer has no ids
// for. The message begins with `what`.
void check_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt, std::string_view what);

// Throws UserError when check_prompt() does, an option is out of range or the tokenizer is not the model's. An
// empty prompt starts from the tokenizer's encoding of a line end.
Generation generate(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                    const GenerateOptions& options);

}  // namespace headroom::decode
