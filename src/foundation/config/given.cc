#include "given.h"

#include <algorithm>

#include "foundation/core/machine/log.h"
#include "special_tokens.h"

namespace headroom::config::detail {

namespace {

// Whether an option gave `key` its value.
bool is_overridden(const GivenKeys& given, const char* key) {
  const auto found = given.find(key);
  return found != given.end() && is_option(found->second);
}

}  // namespace

bool is_option(std::string_view place) {
  return place.starts_with("--");
}

void decide_vocabulary(Config& config, const GivenKeys& given) {
  const bool model = given.contains("model.vocabulary_size");
  TokenizerOptions& tokenizer = config.tokenizer;
  const std::int64_t special = special_tokens(config.model.kind);
  if (!given.contains("tokenizer.vocabulary_size")) {
    if (model) {
      tokenizer.vocabulary_size = std::max<std::int64_t>(config.model.vocabulary_size - special, 0);
    } else if (tokenizer.kind == TokenizerKind::bytes) {
      tokenizer.vocabulary_size = kByteValues;
    } else if (tokenizer.kind == TokenizerKind::words) {
      tokenizer.vocabulary_size = 0;
    }
  }
  // Bytes in place of another tokenizer, whose size no longer matters.
  if (tokenizer.kind == TokenizerKind::bytes && is_overridden(given, "tokenizer.kind") &&
      !is_overridden(given, "tokenizer.vocabulary_size")) {
    tokenizer.vocabulary_size = std::min(tokenizer.vocabulary_size, kByteValues);
  }
  config.vocabulary_follows_tokenizer = !model;
  if (!model && tokenizer.vocabulary_size > 0) {  // 0: as many words as the text has
    const bool bytes = tokenizer.kind == TokenizerKind::bytes;
    const std::int64_t ids = bytes ? std::min(kByteValues, tokenizer.vocabulary_size) : tokenizer.vocabulary_size;
    config.model.vocabulary_size = ids + special;
  }
}

void shorten_warmup(TrainOptions& train, const GivenKeys& given) {
  if (train.warmup_steps > train.steps && is_overridden(given, "train.steps") &&
      !is_overridden(given, "train.warmup_steps")) {
    log_info("train.warmup_steps: {} cut to the {} steps of train.steps", train.warmup_steps, train.steps);
    train.warmup_steps = train.steps;
  }
}

void decide_context(ModelOptions& model, const GivenKeys& given) {
  if (model.kind == ModelKind::vision && model.has_whole_patches() && !given.contains("model.context_length")) {
    model.context_length = model.patches();
  }
}

}  // namespace headroom::config::detail
