#include "vocabulary.h"

#include "headroom/core/error.h"

namespace headroom::decode {

void require_tokenizer_of(const models::Model& model, const tokenizers::Tokenizer& tokenizer, std::string_view what) {
  if (tokenizer.vocabulary_size() != model.options().vocabulary_size) {
    user_error("{}: tokenizer {} has {} ids, but the model's vocabulary_size is {}", what, tokenizer.name(),
               tokenizer.vocabulary_size(), model.options().vocabulary_size);
  }
  tokenizers::require_source_vocabulary(tokenizer, model.options().source_vocabulary_size, what);
}

}  // namespace headroom::decode
