// What the writer and the reader of token files agree on.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headroom/core/safetensors.h"

namespace headroom::data {

inline constexpr const char* kTokenFormat = "headroom.tokens.1";

// In place of the number of unknown bytes: how much text the tokens are is not known.
inline constexpr const char* kNotCounted = "not counted";

inline DType token_dtype(std::int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? DType::u16 : DType::i32;
}

// Of the tokens' bytes, piece by piece.
class TokenChecksum {
 public:
  static constexpr const char* kKey = "checksum";  // in the metadata

  void add(std::span<const std::byte> bytes) {
    sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  std::string text() const { return fmt::format("{:08x}", sum_); }

 private:
  uLong sum_ = crc32_z(0, nullptr, 0);
};

}  // namespace headroom::data
