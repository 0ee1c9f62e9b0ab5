// What the writer and the reader of token files agree on.
#pragma once

#include <cstdint>

#include "headroom/core/safetensors.h"

namespace headroom::data {

inline constexpr const char* kTokenFormat = "headroom.tokens.1";

// In place of the number of unknown bytes: how much text the tokens are is not known.
inline constexpr const char* kNotCounted = "not counted";

inline DType token_dtype(std::int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? DType::u16 : DType::i32;
}

}  // namespace headroom::data
