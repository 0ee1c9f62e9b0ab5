#include "headroom/decode/generate.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/decode/engine.h"
#include "row.h"

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
                                        std::string_view what, std::vector<std::int32_t> ids = {}) {
  if (!is_utf8(prompt)) {
    user_error("{}: must be valid UTF-8", what);
  }
  tokenizer.encode(prompt, ids);
  return ids.empty() ? tokenizers::beginning_of_text(tokenizer) : ids;
}

}  // namespace

void check_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt, std::string_view what) {
  encode_prompt(tokenizer, prompt, what);
}

Generation generate(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                    const GenerateOptions& options) {
  check(model, tokenizer, options);
  const std::vector<std::int32_t> ids = encode_prompt(tokenizer, prompt, "generate: prompt", options.begin);
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
        if (options.ends.contains(static_cast<std::int32_t>(event.id))) {
          return false;
        }
        if (result.tokens++ == 0) {
          start = std::chrono::steady_clock::now();
        }
        emit(stream.push(static_cast<std::int32_t>(event.id)));
        result.cache_elements = engine.counts().cache_elements;
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

namespace {

// Returns the size in bytes of the end of `text` that the next tokens may still change: an incomplete code point, or up
// to three U+FFFD, since SentencePiece decodes each byte of an incomplete code point to one.
std::size_t unsettled_bytes(std::string_view text) {
  if (const std::size_t bytes = unfinished_bytes(text); bytes > 0) {
    return bytes;
  }
  constexpr std::size_t kMost = 3 * kReplacement.size();
  std::size_t bytes = 0;
  while (bytes < kMost && text.substr(0, text.size() - bytes).ends_with(kReplacement)) {
    bytes += kReplacement.size();
  }
  return bytes;
}

}  // namespace

TextStream::TextStream(const tokenizers::Tokenizer& tokenizer, std::vector<std::int32_t> context)
    : tokenizer_(tokenizer), ids_(std::move(context)), released_(ids_.size()) {}

std::string TextStream::push(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = pending();
  const std::size_t settled = text.size() - unsettled_bytes(text), from = std::min(returned_, settled);
  if (settled < text.size() || text.empty()) {
    returned_ = std::max(returned_, settled);
    if (text.empty() && tokenizer_.decode(std::vector<std::int32_t>{id, id}).empty()) {
      ids_.pop_back();  // never has text; a long run of such tokens would be decoded again with each of them
    }
  } else {
    // A context without text (such as a space) would make the tokenizer treat the next token as the text's start.
    if (!tokenizer_.decode(std::span<const std::int32_t>(ids_).subspan(released_)).empty()) {
      ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(released_));
    }
    released_ = ids_.size();
    returned_ = 0;
  }
  return repair_utf8(std::string_view(text).substr(from, settled - from));
}

std::string TextStream::finish() {
  const std::string text = released_ == ids_.size() ? std::string() : pending();
  released_ = ids_.size();
  return repair_utf8(std::string_view(text).substr(std::min(returned_, text.size())));
}

std::string TextStream::pending() const {
  const std::span<const std::int32_t> ids(ids_);
  const std::string before = tokenizer_.decode(ids.first(released_));
  const std::string all = tokenizer_.decode(ids);
  return all.starts_with(before) ? all.substr(before.size()) : tokenizer_.decode(ids.subspan(released_));
}

void require_tokenizer_of(const models::Model& model, const tokenizers::Tokenizer& tokenizer, std::string_view what) {
  if (tokenizer.vocabulary_size() != model.options().vocabulary_size) {
    user_error("{}: the tokenizer {} has {} tokens, but the model's vocabulary_size is {}", what, tokenizer.name(),
               tokenizer.vocabulary_size(), model.options().vocabulary_size);
  }
  tokenizers::require_source_vocabulary(tokenizer, model.options().source_vocabulary_size, what);
}

}  // namespace headroom::decode
