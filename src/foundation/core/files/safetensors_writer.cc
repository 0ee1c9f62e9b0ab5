#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/core/safetensors.h"
#include "safetensors_header.h"

namespace headroom {

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> data) {
  detail::require_consistent("safetensors", name, dtype, shape, data.size());
  if (name == detail::kMetadataKey || tensors_.contains(name)) {
    fail("safetensors: the tensor name \"{}\" is taken", name);
  }
  tensors_.emplace(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = data});
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  metadata_[std::move(key)] = std::move(value);
}

void SafetensorsWriter::add_elsewhere(std::string name, DType dtype, std::vector<std::int64_t> shape) {
  if (name == detail::kMetadataKey || tensors_.contains(name)) {
    fail("safetensors: the tensor name \"{}\" is taken", name);
  }
  tensors_.emplace(std::move(name), StoredTensor{.dtype = dtype, .shape = std::move(shape), .data = {}});
}

// The largest elements first, then by name: every tensor begins at a multiple of its element.
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
    fail("{}: the tensor name \"{}\" is taken", path_.string(), name);
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
