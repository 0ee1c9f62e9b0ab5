#include "headroom/decode/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/core/utf8.h"
#include "headroom/decode/engine.h"
#include "headroom/decode/text_stream.h"

namespace headroom::decode {
namespace {

void check(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, const GenerateOptions& o) {
  if (o.tokens < 0) {
    misuse("generate: tokens must be at least 0, got {}", o.tokens);
  }
  if (!std::isfinite(o.temperature) || o.temperature < 0.0) {
    misuse("generate: temperature must be a number of at least 0, got {}", o.temperature);
  }
  if (o.top_k < 0) {
    misuse("generate: top_k must be at least 0 (0: all), got {}", o.top_k);
  }
  if (!(o.top_p > 0.0 && o.top_p <= 1.0)) {
    misuse("generate: top_p must be above 0 and at most 1, got {}", o.top_p);
  }
  if (tokenizer.vocabulary_size() != model.options().vocabulary_size) {
    misuse("generate: tokenizer {} has {} ids, but the model's vocabulary_size is {}", tokenizer.name(),
           tokenizer.vocabulary_size(), model.options().vocabulary_size);
  }
}

std::vector<std::int32_t> encode_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                                        std::string_view what) {
  if (!is_utf8(prompt)) {
    misuse("{}: must be valid UTF-8", what);
  }
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  if (ids.empty()) {
    ids = tokenizer.encode("\n");
  }
  if (ids.empty()) {
    ids.push_back(0);  // a tokenizer that drops white space: any beginning is as good as another
  }
  return ids;
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
