// Reads a file sequentially, decompressing gzip and zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace headroom {

class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills `out` with up to `size` > 0 bytes and returns their number, which is 0 only at the end. Throws UserError
  // naming the file.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file read so far, before decompression
};

// Opens a regular file. Compression is recognised by the first bytes of the file. Throws UserError if the name ends in
// .gz or .zst and these bytes are missing. Several consecutive compressed members are concatenated. Reading throws
// UserError for a truncated member, a wrong checksum, other data after a member, and zstd data that needs more than 128
// MiB of memory.
std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path);

// Fills `out`; returns the number of bytes, which is smaller only at the end.
std::size_t read_full(ByteReader& reader, std::span<char> out);
// Returns the whole content of a file, decompressed. Throws UserError naming the file if it exceeds `limit` bytes.
std::string read_unpacked(const std::filesystem::path& path, std::size_t limit);

// Decompresses the content of a file that is already in memory, under the rules of open_bytes().
std::string unpacked_content(std::string content, const std::filesystem::path& name, std::size_t limit);

// Returns `path` without .gz or .zst, so that its extension describes the decompressed data.
std::filesystem::path unpacked_name(const std::filesystem::path& path);

}  // namespace headroom
