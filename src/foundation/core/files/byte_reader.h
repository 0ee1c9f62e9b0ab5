// A file's bytes from front to back, unpacked when it is gzip or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace headroom {

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out` with up to `size` > 0 bytes; 0 only at the end. Throws UserError naming the file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file itself, packed or not
};

// Packed files are known by their first bytes, which no text begins with; a name ending in .gz or .zst without them is
// refused. Several members one after the other are one text; a truncated member, a wrong checksum or anything else
// after a member is a UserError, as is zstd data that asks for more than 128 MiB of memory.
std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path);

// The name without .gz or .zst: what says of which kind the unpacked bytes are.
std::filesystem::path unpacked_name(const std::filesystem::path& path);

}  // namespace headroom
