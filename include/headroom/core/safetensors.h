// Safetensors files: a JSON header (name -> dtype, shape, byte range), then raw little-endian tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/files.h"

namespace headroom {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, u16, u32, u64, f8_e4m3, f8_e5m2, c64, boolean };

std::size_t size_of(DType dtype);       // bytes per element
std::string_view name_of(DType dtype);  // as spelled in the header: "F32", "BF16", ...

// A view of a tensor's bytes, which it does not own. Row-major, possibly unaligned.
struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  std::int64_t numel() const;
};

// A memory-mapped file, which owns the bytes that its tensors view. The constructor validates the header against the
// file size: header length, JSON (depth, duplicate keys), dtypes, shapes (overflow), offsets (order, overlap, gaps,
// end). Throws UserError naming the file. Allocates at most the header's size.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // Throw UserError naming the file and the missing name or key.
  const StoredTensor& at(const std::string& name) const;
  const std::string& metadata_at(const std::string& key) const;

 private:
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, StoredTensor> tensors_;
};

// Collects tensors and writes the file in one go. The bytes passed to add() must stay valid until write() returns.
class SafetensorsWriter {
 public:
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> data);
  // Adds a tensor whose bytes another process writes to the file.
  void add_elsewhere(std::string name, DType dtype, std::vector<std::int64_t> shape);
  void set_metadata(std::string key, std::string value);
  void write(const std::filesystem::path& path) const;  // atomic (AtomicFile)

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // The start of the file, and each tensor's offset in the file.
  struct Layout {
    std::string header;
    std::map<std::string, std::uint64_t> positions;
    std::uint64_t size = 0;
  };
  Layout layout(const std::filesystem::path& path) const;  // `path` is used in error messages only

 private:
  void insert(std::string name, StoredTensor tensor);
  std::vector<const std::pair<const std::string, StoredTensor>*> ordered() const;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes one long 1-D tensor incrementally, for data that does not fit in memory. commit() writes the header into
// `header_room` bytes reserved at the start of the file.
class SafetensorsStream {
 public:
  SafetensorsStream(const std::filesystem::path& path, std::string name, DType dtype, std::size_t header_room = 65536);
  void append(std::span<const std::byte> data);
  // Adds a small tensor after the long one.
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, std::vector<std::byte> data);
  // Writes the header. Throws Error if it does not fit into the reserved bytes.
  void commit(const std::map<std::string, std::string>& metadata);

 private:
  AtomicFile file_;
  std::filesystem::path path_;
  std::string name_;
  DType dtype_;
  std::size_t header_room_;
  struct Extra {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
  };
  std::vector<Extra> extras_;
};

}  // namespace headroom
