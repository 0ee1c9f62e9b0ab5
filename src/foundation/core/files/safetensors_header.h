// The header of a safetensors file, for the reader and the writers; implemented in safetensors_writer.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/safetensors.h"

namespace headroom::detail {

constexpr std::size_t kHeaderLimit = 100'000'000;  // bytes; the limit of the format
constexpr std::size_t kHeaderStart = 8;            // offset: the header's length comes first
constexpr char kMetadataKey[] = "__metadata__";

std::optional<DType> dtype_named(std::string_view name);

// Size of a tensor in bytes; nullopt if a dimension is negative or the size overflows.
std::optional<std::uint64_t> byte_size(DType dtype, const std::vector<std::int64_t>& shape);

// A tensor's entry in the header; its data is the bytes [begin, end) after the header.
struct Entry {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

// The beginning of the file: the header's length, its JSON, and spaces up to `room` bytes in total or, if room is 0, to
// the next multiple of 64. Throws Error naming `path` if it does not fit or a name or metadata is not valid UTF-8.
std::string header_text(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata,
                        std::size_t room, const std::string& path);

// Throws Error unless dtype and shape take exactly `bytes` bytes.
void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes);

}  // namespace headroom::detail
