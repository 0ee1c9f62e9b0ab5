// Ids that a kind of model has besides its tokenizer's: they come after those in its vocabulary.
#pragma once

#include <cstdint>

#include "headroom/config/model_options.h"

namespace headroom::config {

// Masked language models: <separator> and <mask>, in this order.
inline constexpr std::int64_t special_tokens(ModelKind kind) {
  return kind == ModelKind::masked_language_model ? 2 : 0;
}

}  // namespace headroom::config
