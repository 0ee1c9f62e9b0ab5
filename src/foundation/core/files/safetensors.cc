#include "headroom/core/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and used without conversion");

namespace {

constexpr std::size_t kHeaderLimit = 100'000'000;  // bytes; limit of the format
constexpr std::size_t kHeaderStart = 8;            // byte offset of the JSON, after the header's length
constexpr char kMetadataKey[] = "__metadata__";

// A tensor's entry in the header. Its data is the byte range [begin, end), counted from the end of the header.
struct Entry {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

struct DTypeName {
  DType dtype;
  std::string_view name;
  std::size_t size;
};
constexpr DTypeName kDTypeNames[] = {
    {DType::f64, "F64", 8},         {DType::f32, "F32", 4},         {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},       {DType::i64, "I64", 8},         {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},         {DType::i8, "I8", 1},           {DType::u8, "U8", 1},
    {DType::u16, "U16", 2},         {DType::u32, "U32", 4},         {DType::u64, "U64", 8},
    {DType::f8_e4m3, "F8_E4M3", 1}, {DType::f8_e5m2, "F8_E5M2", 1}, {DType::c64, "C64", 8},
    {DType::boolean, "BOOL", 1}};

const DTypeName& entry_of(DType dtype) {
  return *std::ranges::find_if(kDTypeNames, [dtype](const DTypeName& s) { return s.dtype == dtype; });
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DTypeName& spelling : kDTypeNames) {
    if (spelling.name == name) {
      return spelling.dtype;
    }
  }
  return std::nullopt;
}

// Returns the size of a tensor in bytes; nullopt if a dimension is negative or the size overflows.
std::optional<std::uint64_t> byte_size(DType dtype, const std::vector<std::int64_t>& shape) {
  // Signed arithmetic, so that StoredTensor::numel() cannot overflow either.
  std::int64_t numel = 1, bytes = 0;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(numel, extent, &numel)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(numel, static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

// Returns the start of the file: the header's length, its JSON, and padding with spaces to `room` bytes in total or, if
// room is 0, to the next multiple of 64. Throws Error naming `path` if the header does not fit, or if a name or the
// metadata is not valid UTF-8.
std::string header_text(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata,
                        std::size_t room, const std::string& path) {
  std::string json;
  try {
    // Written entry by entry, because insertion into one large ordered object takes quadratic time.
    if (!metadata.empty()) {
      json = Json(kMetadataKey).dump() + ":" + Json(metadata).dump();
    }
    for (const Entry& entry : entries) {
      const Json described = {
          {"dtype", name_of(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
      json += (json.empty() ? "" : ",") + Json(entry.name).dump() + ":" + described.dump();
    }
  } catch (const Json::exception&) {
    fail("{}: cannot be written: a name or metadata is not valid UTF-8", path);
  }
  json = "{" + json + "}";
  if (room == 0) {
    room = (kHeaderStart + json.size() + 63) / 64 * 64;
  }
  if (kHeaderStart + json.size() > room || json.size() > kHeaderLimit) {
    fail("{}: cannot be written: the header takes {} bytes, but only {} are reserved", path, json.size(),
         std::min(room - kHeaderStart, kHeaderLimit));
  }
  const std::uint64_t length = room - kHeaderStart;
  std::string text(room, ' ');
  std::memcpy(text.data(), &length, sizeof length);
  std::memcpy(text.data() + kHeaderStart, json.data(), json.size());
  return text;
}

// Throws Error unless a tensor of this dtype and shape has exactly `bytes` bytes.
void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes) {
  const std::optional<std::uint64_t> expected = byte_size(dtype, shape);
  if (!expected || *expected != bytes) {
    fail("{}: tensor \"{}\" cannot be written: its shape and dtype do not match its {} bytes", path, printable(name),
         bytes);
  }
}

constexpr std::size_t kHeaderDepth = 8;

// Reads the header of a file. Every error names the file.
class HeaderReader {
 public:
  explicit HeaderReader(const MappedFile& file) : bytes_(file.bytes()), path_(file.path().string()) {}

  // Parses the header, and sets `data` to the bytes after it.
  SortedJson json(std::span<const std::byte>& data) const {
    if (bytes_.size() < kHeaderStart) {
      user_error("{}: truncated: {} bytes, too short for a safetensors file", path_, bytes_.size());
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length > kHeaderLimit) {
      user_error("{}: is not a safetensors file", path_);
    }
    const std::span<const std::byte> rest = bytes_.subspan(kHeaderStart);
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
    std::ranges::transform(entries, order.begin(), [](const Entry& entry) { return &entry; });
    std::ranges::sort(order, [](const Entry* a, const Entry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
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
    const std::optional<DType> known = dtype_named(text);
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
    const std::optional<std::uint64_t> size = byte_size(entry.dtype, entry.shape);
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

std::size_t size_of(DType dtype) {
  return entry_of(dtype).size;
}

std::string_view name_of(DType dtype) {
  return entry_of(dtype).name;
}

std::int64_t StoredTensor::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const HeaderReader reader(file_);
  std::span<const std::byte> data;
  const SortedJson header = reader.json(data);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
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

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> data) {
  require_consistent("safetensors", name, dtype, shape, data.size());
  insert(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = data});
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  metadata_[std::move(key)] = std::move(value);
}

void SafetensorsWriter::add_elsewhere(std::string name, DType dtype, std::vector<std::int64_t> shape) {
  insert(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = {}});
}

void SafetensorsWriter::insert(std::string name, StoredTensor tensor) {
  if (name == kMetadataKey || tensors_.contains(name)) {
    fail("safetensors: duplicate tensor name \"{}\"", name);
  }
  tensors_.emplace(std::move(name), std::move(tensor));
}

// Returns tensors by descending element size, then by name, so that each is aligned to its element size.
std::vector<const std::pair<const std::string, StoredTensor>*> SafetensorsWriter::ordered() const {
  std::vector<const std::pair<const std::string, StoredTensor>*> order =
      transformed(tensors_, [&](const auto& tensor) { return &tensor; });
  std::ranges::stable_sort(
      order, [](const auto* a, const auto* b) { return size_of(a->second.dtype) > size_of(b->second.dtype); });
  return order;
}

SafetensorsWriter::Layout SafetensorsWriter::layout(const std::filesystem::path& path) const {
  std::vector<Entry> entries;
  Layout layout;
  for (const auto* tensor : ordered()) {
    const StoredTensor& stored = tensor->second;
    const std::uint64_t bytes = static_cast<std::uint64_t>(stored.numel()) * size_of(stored.dtype);
    entries.push_back({tensor->first, stored.dtype, stored.shape, layout.size, layout.size + bytes});
    layout.positions.emplace(tensor->first, layout.size);
    layout.size += bytes;
  }
  layout.header = header_text(entries, metadata_, 0, path.string());
  for (auto& [name, position] : layout.positions) {
    position += layout.header.size();
  }
  layout.size += layout.header.size();
  return layout;
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  AtomicFile file(path);
  file.write(layout(path).header);
  for (const auto* tensor : ordered()) {
    file.write(tensor->second.data);
  }
  file.commit();
}

SafetensorsStream::SafetensorsStream(const std::filesystem::path& path, std::string name, DType dtype,
                                     std::size_t header_room)
    : file_(path), path_(path), name_(std::move(name)), dtype_(dtype), header_room_((header_room + 63) / 64 * 64) {
  file_.write(std::string(header_room_, ' '));
}

void SafetensorsStream::append(std::span<const std::byte> data) {
  file_.write(data);
}

void SafetensorsStream::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::vector<std::byte> data) {
  require_consistent(path_.string(), name, dtype, shape, data.size());
  const auto same = [&name](const Extra& extra) { return extra.name == name; };
  if (name == name_ || name == kMetadataKey || std::ranges::any_of(extras_, same)) {
    fail("{}: duplicate tensor name \"{}\"", path_.string(), name);
  }
  extras_.push_back({std::move(name), dtype, std::move(shape), std::move(data)});
}

void SafetensorsStream::commit(const std::map<std::string, std::string>& metadata) {
  std::uint64_t position = file_.size() - header_room_;
  const auto numel = static_cast<std::int64_t>(position / size_of(dtype_));
  require_consistent(path_.string(), name_, dtype_, {numel}, position);
  std::vector<Entry> entries = {{name_, dtype_, {numel}, 0, position}};
  for (const Extra& extra : extras_) {
    entries.push_back({extra.name, extra.dtype, extra.shape, position, position + extra.data.size()});
    position += extra.data.size();
  }
  const std::string header = header_text(entries, metadata, header_room_, path_.string());
  for (const Extra& extra : extras_) {
    file_.write(extra.data);
  }
  file_.write_at(0, std::as_bytes(std::span(header)));
  file_.commit();
}

}  // namespace headroom
