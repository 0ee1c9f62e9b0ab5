// Tokenizers as a tokenizer.json, which the package `tokenizers` reads.
#include <algorithm>

#include "data/tokenizers/bpe/model.h"
#include "data/tokenizers/sentencepiece/sentencepiece_json.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {
namespace {

// Bytes are BPE without merges, one symbol each.
BpeModel bytes_as_bpe(const Tokenizer& tokenizer, const SpecialNames& special) {
  BpeModel model;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string byte = tokenizer.decode(std::span(&id, 1));
    const bool marks = std::find(special.names.begin(), special.names.end(), byte) != special.names.end();
    model.tokens.push_back(marks ? byte : character_of_byte(static_cast<unsigned char>(byte.front())));
    if (marks) {
      model.added.push_back({.id = id, .content = byte, .normalised = false, .special = true});
    }
  }
  return model;
}

}  // namespace

std::string to_tokenizer_json(const Tokenizer& tokenizer, const SpecialNames& special) {
  if (tokenizer.source_vocabulary_size() > 0) {
    return {};
  }
  switch (tokenizer.kind()) {
    case config::TokenizerKind::bpe: {
      BpeModel model = parse_tokenizer_json(tokenizer.serialised(), tokenizer.name());
      model.spare_ids = 0;
      if (const std::int32_t id = tokenizer.id_of(special.in_front); id >= 0 && model.post_processor.empty()) {
        model.post_processor = template_for(special.in_front, id).dump();
      }
      return to_tokenizer_json(model);
    }
    case config::TokenizerKind::bytes:
      return to_tokenizer_json(bytes_as_bpe(tokenizer, special));
    case config::TokenizerKind::sentencepiece:
      return sentencepiece_to_json(tokenizer.serialised(), special);
    case config::TokenizerKind::words:
      break;
  }
  return {};
}

}  // namespace headroom::tokenizers
