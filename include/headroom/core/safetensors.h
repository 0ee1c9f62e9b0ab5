// Safetensors: a JSON header (name -> dtype, shape, byte range) and raw little-endian tensors after it.
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

std::size_t size_of(DType dtype);       // bytes an element
std::string_view name_of(DType dtype);  // as the header spells it: "F32", "BF16", ...

// A tensor's bytes where they lie: row-major, not necessarily aligned to its element.
struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  std::int64_t numel() const;
};

// A file mapped into memory. Opening checks everything that the header claims against the file's size: header
// length, JSON (depth, duplicate keys), dtypes, shapes (overflow), offsets (order, overlap, gaps, end).
// A file that lies is a UserError that names it; nothing larger than the header is ever allocated.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // Throws UserError naming the file and what it lacks.
  const StoredTensor& at(const std::string& name) const;
  const std::string& metadata_at(const std::string& key) const;

 private:
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes a whole file at once. The bytes handed to add() must stay alive until write().
class SafetensorsWriter {
 public:
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> data);
  // One whose bytes another process writes into the file.
  void add_elsewhere(std::string name, DType dtype, std::vector<std::int64_t> shape);
  void set_metadata(std::string key, std::string value);
  void write(const std::filesystem::path& path) const;  // aside, fsync, rename

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // What the file begins with, and where each tensor's bytes lie in it.
  struct Layout {
    std::string header;
    std::map<std::string, std::uint64_t> positions;
    std::uint64_t size = 0;
  };
  Layout layout(const std::filesystem::path& path) const;  // `path` is for errors

 private:
  std::vector<const std::pair<const std::string, StoredTensor>*> ordered() const;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes one tensor of unknown length piece by piece, for data that does not fit in memory. The header's room
// is kept free at the front and filled in by commit().
class SafetensorsStream {
 public:
  SafetensorsStream(const std::filesystem::path& path, std::string name, DType dtype, std::size_t header_room = 65536);
  void append(std::span<const std::byte> data);
  // Small tensors that follow the large one.
  void add(std::string name, DType dtype, std::vector<std::int64_t> shape, std::vector<std::byte> data);
  // Throws Error when the header does not fit its room.
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
