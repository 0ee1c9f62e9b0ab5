#include "headroom/decode/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/decode/engine.h"
#include "headroom/decode/text_stream.h"
#include "sample.h"
#include "vocabulary.h"

namespace headroom::decode {
namespace {

void check(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, const GenerateOptions& o) {
  if (o.tokens < 0) {
    user_error("generate: tokens must be at least 0, got {}", o.tokens);
  }
  check_sampling({.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p}, "generate");
  require_tokenizer_of(model, tokenizer, "generate");
}

std::vector<std::int32_t> encode_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                                        std::string_view what) {
  if (!is_utf8(prompt)) {
    user_error("{}: must be valid UTF-8", what);
  }
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  return ids.empty() ? tokenizers::beginning_of_text(tokenizer) : ids;
}

}  // namespace

void check_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt, std::string_view what) {
  encode_prompt(tokenizer, prompt, what);
}

Generation generate(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                    const GenerateOptions& options) {
  check(model, tokenizer, options);
  const std::vector<std::int32_t> ids = encode_prompt(tokenizer, prompt, "generate: prompt");
  Generation result;
  const auto emit = [&](const std::string& text) {
    if (!text.empty()) {
      result.text += text;
      if (options.on_text) {
        options.on_text(text);
      }
    }
  };

  Engine engine(model, {.max_rows = 1, .context = options.context});
  TextStream stream(tokenizer, ids);
  std::chrono::steady_clock::time_point start;
  Ending ending;
  engine.add(
      {.prompt = {ids.begin(), ids.end()},
       .max_tokens = options.tokens,
       .temperature = options.temperature,
       .top_k = options.top_k,
       .top_p = options.top_p,
       .seed = options.seed},
      [&](const TokenEvent& event) {
        if (result.tokens++ == 0) {
          start = std::chrono::steady_clock::now();
        }
        emit(stream.push(static_cast<std::int32_t>(event.id)));
        result.cache_numbers = engine.counts().cache_numbers;
        return !interrupted();
      },
      [&](const Ending& how) { ending = how; });
  while (engine.step()) {
  }
  if (ending.reason == Finish::failed) {
    fail("generate: {}", ending.error);
  }
  emit(stream.finish());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.tokens_per_second = seconds > 0.0 ? static_cast<double>(result.tokens) / seconds : 0.0;
  return result;
}

}  // namespace headroom::decode
