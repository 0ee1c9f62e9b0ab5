#include "safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and used without conversion");

namespace {

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
  return *std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                       [dtype](const DTypeName& s) { return s.dtype == dtype; });
}

}  // namespace

std::size_t size_of(DType dtype) {
  return entry_of(dtype).size;
}

std::string_view name_of(DType dtype) {
  return entry_of(dtype).name;
}

namespace detail {

std::optional<DType> dtype_named(std::string_view name) {
  for (const DTypeName& spelling : kDTypeNames) {
    if (spelling.name == name) {
      return spelling.dtype;
    }
  }
  return std::nullopt;
}

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

void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes) {
  const std::optional<std::uint64_t> expected = byte_size(dtype, shape);
  if (!expected || *expected != bytes) {
    fail("{}: tensor \"{}\" cannot be written: its shape and dtype do not match its {} bytes", path, printable(name),
         bytes);
  }
}

}  // namespace detail
void SafetensorsWriter::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> data) {
  detail::require_consistent("safetensors", name, dtype, shape, data.size());
  insert(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = data});
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  metadata_[std::move(key)] = std::move(value);
}

void SafetensorsWriter::add_elsewhere(std::string name, DType dtype, std::vector<std::int64_t> shape) {
  insert(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = {}});
}

void SafetensorsWriter::insert(std::string name, StoredTensor tensor) {
  if (name == detail::kMetadataKey || tensors_.contains(name)) {
    fail("safetensors: duplicate tensor name \"{}\"", name);
  }
  tensors_.emplace(std::move(name), std::move(tensor));
}

// Returns tensors by descending element size, then by name, so that each is aligned to its element size.
std::vector<const std::pair<const std::string, StoredTensor>*> SafetensorsWriter::ordered() const {
  std::vector<const std::pair<const std::string, StoredTensor>*> order;
  for (const auto& tensor : tensors_) {
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->second.dtype) > size_of(b->second.dtype); });
  return order;
}

SafetensorsWriter::Layout SafetensorsWriter::layout(const std::filesystem::path& path) const {
  std::vector<detail::Entry> entries;
  Layout layout;
  for (const auto* tensor : ordered()) {
    const StoredTensor& stored = tensor->second;
    const std::uint64_t bytes = static_cast<std::uint64_t>(stored.numel()) * size_of(stored.dtype);
    entries.push_back({tensor->first, stored.dtype, stored.shape, layout.size, layout.size + bytes});
    layout.positions.emplace(tensor->first, layout.size);
    layout.size += bytes;
  }
  layout.header = detail::header_text(entries, metadata_, 0, path.string());
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
  detail::require_consistent(path_.string(), name, dtype, shape, data.size());
  const auto same = [&name](const Extra& extra) { return extra.name == name; };
  if (name == name_ || name == detail::kMetadataKey || std::any_of(extras_.begin(), extras_.end(), same)) {
    fail("{}: duplicate tensor name \"{}\"", path_.string(), name);
  }
  extras_.push_back({std::move(name), dtype, std::move(shape), std::move(data)});
}

void SafetensorsStream::commit(const std::map<std::string, std::string>& metadata) {
  std::uint64_t position = file_.size() - header_room_;
  const auto numel = static_cast<std::int64_t>(position / size_of(dtype_));
  detail::require_consistent(path_.string(), name_, dtype_, {numel}, position);
  std::vector<detail::Entry> entries = {{name_, dtype_, {numel}, 0, position}};
  for (const Extra& extra : extras_) {
    entries.push_back({extra.name, extra.dtype, extra.shape, position, position + extra.data.size()});
    position += extra.data.size();
  }
  const std::string header = detail::header_text(entries, metadata, header_room_, path_.string());
  for (const Extra& extra : extras_) {
    file_.write(extra.data);
  }
  file_.write_at(0, std::as_bytes(std::span(header)));
  file_.commit();
}

}  // namespace headroom
