// Packed bytes as the bytes that they hold, of any number of members one after the other.
#pragma once

#include <filesystem>
#include <memory>

#include "byte_reader.h"

namespace headroom {

inline constexpr std::size_t kUnpackerBuffer = std::size_t{64} << 10;

// `file` are the bytes of `path`, which messages name: what is truncated, damaged, or followed by anything else is a
// UserError.
std::unique_ptr<ByteReader> unpack_gzip(const std::filesystem::path& path, std::unique_ptr<ByteReader> file);
// Windows of up to 128 MiB, as zstd itself unpacks without --long, and nothing else of that size.
std::unique_ptr<ByteReader> unpack_zstd(const std::filesystem::path& path, std::unique_ptr<ByteReader> file);

}  // namespace headroom
