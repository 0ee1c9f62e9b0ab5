#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "safetensors_header.h"

namespace headroom {
namespace {

using detail::Entry;

constexpr std::size_t kHeaderDepth = 8;

// Reads the header of a file. Every error names the file.
class HeaderReader {
 public:
  explicit HeaderReader(const MappedFile& file) : bytes_(file.bytes()), path_(file.path().string()) {}

  // Parses the header, and sets `data` to the bytes after it.
  SortedJson json(std::span<const std::byte>& data) const {
    if (bytes_.size() < detail::kHeaderStart) {
      user_error("{}: truncated: {} bytes, too short for a safetensors file", path_, bytes_.size());
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length > detail::kHeaderLimit) {
      user_error("{}: not a safetensors file: a header of {} bytes is declared", path_, length);
    }
    const std::span<const std::byte> rest = bytes_.subspan(detail::kHeaderStart);
    if (length > rest.size()) {
      user_error("{}: truncated: a header of {} bytes is declared, the file has {}", path_, length, rest.size());
    }
    data = rest.subspan(length);
    const std::string_view text(reinterpret_cast<const char*>(rest.data()), length);
    SortedJson header = parse_sorted_json(text, path_ + ": header", kHeaderDepth);
    if (!header.is_object()) {
      user_error("{}: the header must be a JSON object", path_);
    }
    return header;
  }

  std::map<std::string, std::string> metadata(const SortedJson& value) const {
    if (!value.is_object()) {
      user_error("{}: __metadata__ must be a JSON object", path_);
    }
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        user_error("{}: __metadata__: \"{}\" must be a string", path_, printable(key));
      }
      metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
  }

  Entry entry(const std::string& name, const SortedJson& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      refuse(name, "must have dtype, shape and data_offsets and nothing else");
    }
    Entry entry{.name = name, .dtype = dtype(name, value["dtype"]), .shape = {}, .begin = 0, .end = 0};
    if (!value["shape"].is_array()) {
      refuse(name, "shape must be a list of numbers");
    }
    for (const SortedJson& extent : value["shape"]) {
      entry.shape.push_back(static_cast<std::int64_t>(whole(name, "shape", extent)));
    }
    const SortedJson& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) {
      refuse(name, "data_offsets must be two numbers");
    }
    entry.begin = whole(name, "data_offsets", offsets[0]);
    entry.end = whole(name, "data_offsets", offsets[1]);
    require_size(entry);
    return entry;
  }

  // Throws UserError unless the tensors cover the data exactly, in any order.
  void require_cover(const std::vector<Entry>& entries, std::size_t data_size) const {
    std::vector<const Entry*> order(entries.size());
    std::transform(entries.begin(), entries.end(), order.begin(), [](const Entry& entry) { return &entry; });
    std::sort(order.begin(), order.end(),
              [](const Entry* a, const Entry* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
    std::uint64_t position = 0;
    for (const Entry* entry : order) {
      if (entry->begin < position) {
        refuse(entry->name, "overlaps another tensor");
      }
      if (entry->begin > position) {
        refuse(entry->name, fmt::format("begins at byte {}, the one before it ends at {}", entry->begin, position));
      }
      position = entry->end;
    }
    if (position > data_size) {
      user_error("{}: truncated: the header describes {} bytes of tensors, the file has {}", path_, position,
                 data_size);
    }
    if (position < data_size) {
      user_error("{}: {} unexpected bytes after the last tensor", path_, data_size - position);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& name, std::string_view why) const {
    user_error("{}: tensor \"{}\": {}", path_, printable(name), why);
  }

  DType dtype(const std::string& name, const SortedJson& value) const {
    if (!value.is_string()) {
      refuse(name, "dtype must be a string");
    }
    const std::string& text = value.get_ref<const std::string&>();
    const std::optional<DType> known = detail::dtype_named(text);
    if (!known) {
      refuse(name, fmt::format("dtype \"{}\" is unknown", printable(text)));
    }
    return *known;
  }

  std::uint64_t whole(const std::string& name, const char* key, const SortedJson& value) const {
    // The library parses non-negative integers as unsigned, and integers that overflow as floats.
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
      refuse(name, fmt::format("{} must hold integers from 0 to 2^63-1", key));
    }
    return value.get<std::uint64_t>();
  }

  void require_size(const Entry& entry) const {
    const std::optional<std::uint64_t> size = detail::byte_size(entry.dtype, entry.shape);
    const std::string shape = fmt::format("{} of shape [{}]", name_of(entry.dtype), fmt::join(entry.shape, ", "));
    if (!size) {
      refuse(entry.name, fmt::format("{} is larger than any memory", printable(shape)));
    }
    if (entry.end < entry.begin || entry.end - entry.begin != *size) {
      refuse(entry.name, fmt::format("{} takes {} bytes, its data_offsets are {} to {}", printable(shape), *size,
                                     entry.begin, entry.end));
    }
  }

  std::span<const std::byte> bytes_;
  std::string path_;
};

}  // namespace

std::int64_t StoredTensor::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const HeaderReader reader(file_);
  std::span<const std::byte> data;
  const SortedJson header = reader.json(data);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == detail::kMetadataKey) {
      metadata_ = reader.metadata(value);
    } else {
      entries.push_back(reader.entry(name, value));
    }
  }
  reader.require_cover(entries, data.size());
  for (Entry& entry : entries) {
    tensors_.emplace(std::move(entry.name), StoredTensor{.dtype = entry.dtype,
                                                         .shape = std::move(entry.shape),
                                                         .data = data.subspan(entry.begin, entry.end - entry.begin)});
  }
}

const StoredTensor& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    user_error("{}: has no tensor \"{}\"", path().string(), name);
  }
  return found->second;
}

const std::string& SafetensorsFile::metadata_at(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) {
    user_error("{}: has no metadata \"{}\"", path().string(), key);
  }
  return found->second;
}

}  // namespace headroom
