#include "headroom/decode/generate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/core/utf8.h"
#include "sample.h"
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

std::span<const double> span_of(const at::Tensor& logits) {
  return {logits.const_data_ptr<double>(), static_cast<std::size_t>(logits.numel())};
}

}  // namespace

void check_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt, std::string_view what) {
  encode_prompt(tokenizer, prompt, what);
}

Generation generate(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                    const GenerateOptions& options) {
  check(model, tokenizer, options);
  const at::NoGradGuard no_grad;
  nn::Context context = options.context;
  context.training = false;
  const SampleOptions how{.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p};
  Random random(options.seed);

  Generation result;
  const auto emit = [&](const std::string& text) {
    if (!text.empty()) {
      result.text += text;
      if (options.on_text) {
        options.on_text(text);
      }
    }
  };

  std::vector<std::int32_t> ids = encode_prompt(tokenizer, prompt, "generate: prompt");
  models::DecodeState state = model.start_decoding();
  const auto read = [&](std::span<const std::int64_t> tokens) {
    const models::DecodeRow row{&state, tokens};
    return model.decode({&row, 1}, context);
  };
  at::Tensor logits = read(std::vector<std::int64_t>(ids.begin(), ids.end()));
  TextStream stream(tokenizer, std::move(ids));
  const auto start = std::chrono::steady_clock::now();
  while (result.tokens < options.tokens && !interrupted()) {
    const at::Tensor last = logits.to(at::kDouble).cpu().contiguous();
    const std::int32_t id = sample(span_of(last), how, random);
    emit(stream.push(id));
    if (++result.tokens < options.tokens) {
      logits = read(std::vector<std::int64_t>{id});
    }
  }
  emit(stream.finish());
  result.cache_numbers = state.cache_numbers();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.tokens_per_second = seconds > 0.0 ? static_cast<double>(result.tokens) / seconds : 0.0;
  return result;
}

}  // namespace headroom::decode
