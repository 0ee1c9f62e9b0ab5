// The layout of a token file, for its reader and its writer.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <cstddef>
#include <span>
#include <string>

namespace headroom::data {

inline constexpr const char *kTokenFormat = "headroom.tokens.1", *kDocuments = "documents";
inline constexpr const char* kNotCounted = "not counted";  // metadata value of unknown_bytes if it is not known

class TokenChecksum {
 public:
  static constexpr const char* kKey = "checksum";  // metadata key

  void add(std::span<const std::byte> bytes) {
    sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  std::string text() const { return fmt::format("{:08x}", sum_); }

 private:
  uLong sum_ = crc32_z(0, nullptr, 0);
};

}  // namespace headroom::data
