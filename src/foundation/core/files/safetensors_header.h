// The header of a safetensors file, shared by the reader and the writers. Implemented in safetensors_writer.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/safetensors.h"

namespace headroom::detail {

constexpr std::size_t kHeaderLimit = 100'000'000;  // bytes; limit of the format
constexpr std::size_t kHeaderStart = 8;            // byte offset of the JSON, after the header's length
constexpr char kMetadataKey[] = "__metadata__";

std::optional<DType> dtype_named(std::string_view name);

// Returns the size of a tensor in bytes; nullopt if a dimension is negative or the size overflows.
std::optional<std::uint64_t> byte_size(DType dtype, const std::vector<std::int64_t>& shape);

// A tensor's entry in the header. Its data is the byte range [begin, end), counted from the end of the header.
struct Entry {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

// Returns the start of the file: the header's length, its JSON, and padding with spaces to `room` bytes in total or, if
// room is 0, to the next multiple of 64. Throws Error naming `path` if the header does not fit, or if a name or the
// metadata is not valid UTF-8.
std::string header_text(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata,
                        std::size_t room, const std::string& path);

// Throws Error unless a tensor of this dtype and shape has exactly `bytes` bytes.
void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes);

}  // namespace headroom::detail
