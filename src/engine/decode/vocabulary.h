// Whether texts can be given to a model as a tokenizer's ids.
#pragma once

#include <string_view>

#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::decode {

// Throws UserError, beginning with `what`, where the model knows another number of tokens.
void require_tokenizer_of(const models::Model& model, const tokenizers::Tokenizer& tokenizer, std::string_view what);

}  // namespace headroom::decode
