// Two tokenizers as one are written as a mark, the kind and the bytes of the sources' tokenizer, and the translations'.
#pragma once

#include <memory>
#include <string_view>

#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

bool holds_two(std::string_view serialised);
// `kind` is the translations'; of what holds_two(). Throws UserError naming `origin`.
std::unique_ptr<Tokenizer> restore_two(config::TokenizerKind kind, std::string_view serialised,
                                       std::string_view origin);

}  // namespace headroom::tokenizers
