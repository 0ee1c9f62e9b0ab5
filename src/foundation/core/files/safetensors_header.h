// What the reader and the writers of safetensors files share: the dtypes' spelling and the file's front.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/safetensors.h"

namespace headroom::detail {

constexpr std::size_t kHeaderLimit = 100'000'000;  // bytes; the format's own limit
constexpr std::size_t kHeaderStart = 8;            // after the header's length
constexpr char kMetadataKey[] = "__metadata__";

std::optional<DType> dtype_named(std::string_view name);

// Bytes of a tensor, nothing when a dimension is negative or the product does not fit.
std::optional<std::uint64_t> byte_size(DType dtype, const std::vector<std::int64_t>& shape);

// A tensor's entry in the header: bytes [begin, end) after it.
struct Entry {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

// The file's front: the length, the JSON and blanks so that it takes `room` bytes, or, with room 0, the next
// multiple of 64. Throws Error naming `path` when it does not fit or a text is not UTF-8.
std::string header_text(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata,
                        std::size_t room, const std::string& path);

// Refuses a tensor that its writer describes wrongly.
void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes);

}  // namespace headroom::detail
