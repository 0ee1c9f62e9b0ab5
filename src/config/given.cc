#include "given.h"

#include <algorithm>

namespace headroom::config::detail {

void decide_vocabulary(Config& config, const GivenKeys& given) {
  const bool model = given.contains("model.vocabulary_size");
  TokenizerOptions& tokenizer = config.tokenizer;
  if (!given.contains("tokenizer.vocabulary_size")) {
    if (model) {
      tokenizer.vocabulary_size = config.model.vocabulary_size;
    } else if (tokenizer.kind == TokenizerKind::bytes) {
      tokenizer.vocabulary_size = kByteValues;
    }
  }
  config.vocabulary_follows_tokenizer = !model;
  if (!model && tokenizer.vocabulary_size > 0) {  // 0: as many words as the text has
    const bool bytes = tokenizer.kind == TokenizerKind::bytes;
    config.model.vocabulary_size = bytes ? std::min(kByteValues, tokenizer.vocabulary_size) : tokenizer.vocabulary_size;
  }
}

}  // namespace headroom::config::detail
