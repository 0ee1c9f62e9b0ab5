// A file's bytes from front to back, unpacked when it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace headroom {

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out` with up to `size` > 0 bytes; 0 only at the end. Throws MisuseError naming the file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file itself, packed or not
};

// Gzip is known by its first two bytes, which no text begins with; a name ending in .gz without them is refused.
// Several gzip members one after the other are one text; a truncated member, a wrong checksum or anything else
// after a member is a MisuseError.
std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path);

}  // namespace headroom
