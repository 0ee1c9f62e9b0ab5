#include "given.h"

#include <algorithm>

#include "headroom/config/special_tokens.h"

namespace headroom::config::detail {

void decide_vocabulary(Config& config, const GivenKeys& given) {
  const bool model = given.contains("model.vocabulary_size");
  TokenizerOptions& tokenizer = config.tokenizer;
  const std::int64_t special = special_tokens(config.model.kind);
  if (!given.contains("tokenizer.vocabulary_size")) {
    if (model) {
      tokenizer.vocabulary_size = std::max<std::int64_t>(config.model.vocabulary_size - special, 0);
    } else if (tokenizer.kind == TokenizerKind::bytes) {
      tokenizer.vocabulary_size = kByteValues;
    }
  }
  // Bytes in place of another tokenizer, whose size no longer matters.
  const auto from = [&given](const char* key) { return given.contains(key) ? given.find(key)->second : ""; };
  if (tokenizer.kind == TokenizerKind::bytes && from("tokenizer.kind") == kOverride &&
      from("tokenizer.vocabulary_size") != kOverride) {
    tokenizer.vocabulary_size = std::min(tokenizer.vocabulary_size, kByteValues);
  }
  config.vocabulary_follows_tokenizer = !model;
  if (!model && tokenizer.vocabulary_size > 0) {  // 0: as many words as the text has
    const bool bytes = tokenizer.kind == TokenizerKind::bytes;
    const std::int64_t ids = bytes ? std::min(kByteValues, tokenizer.vocabulary_size) : tokenizer.vocabulary_size;
    config.model.vocabulary_size = ids + special;
  }
}

void decide_context(ModelOptions& model, const GivenKeys& given) {
  if (model.kind == ModelKind::vision && model.has_whole_patches() && !given.contains("model.context_length")) {
    model.context_length = model.patches();
  }
}

}  // namespace headroom::config::detail
