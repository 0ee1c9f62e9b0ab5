// Sequential reading of a file, decompressed if it is gzip or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace headroom {

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out` with up to `size` > 0 bytes and returns their number, 0 only at the end. Throws UserError naming the
  // file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file as stored, compressed or not
};

// Opens a regular file. Compression is recognised by the file's first bytes; a name ending in .gz or .zst without them
// is a UserError. Several compressed members in a row are concatenated. Reading throws UserError for a truncated
// member, a wrong checksum, other data after a member, and zstd data that needs more than 128 MiB of memory.
std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path);

// `path` without .gz or .zst: its extension is that of the decompressed data.
std::filesystem::path unpacked_name(const std::filesystem::path& path);

}  // namespace headroom
