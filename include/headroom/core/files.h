// Files that are never half-written, read without being copied, or shared by accident.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

// A file mapped read-only into memory; empty files map to an empty span.
// Throws UserError naming the path when it is missing, a folder or unreadable.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file under construction: everything goes to `<path>.tmp-<pid>-<number>` and only commit() — flush, fsync,
// rename, fsync of the folder — makes it appear under `path`. Without commit() the destructor removes it; what a killed
// process left of an earlier one for the same path goes first.
// Throws Error naming `path` and the system's reason (no space left, read-only, ...).
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void write_at(std::size_t offset, std::span<const std::byte> bytes);  // over bytes written before
  std::size_t size() const { return size_; }
  void commit();

  // For several processes: makes it so long at once, and other processes of this or another machine fill() in their
  // ranges under its temporary name.
  void resize(std::size_t size);
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  [[noreturn]] void refuse(const char* doing) const;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// A range of a file's bytes.
struct Range {
  std::size_t offset = 0;
  std::span<const std::byte> bytes;
};
// Writes ranges of a file that is there, and fsyncs it. Throws Error naming it and the system's reason.
void fill(const std::filesystem::path& file, const std::vector<Range>& ranges);

// Removes files under construction that no living process writes: in `folder`, for the target of this name there or,
// without one, for all. The folder need not exist.
void remove_leftovers(const std::filesystem::path& folder, std::string_view target = {});

// Whole text file of at most `limit` bytes. Throws UserError naming the path.
std::string read_text_file(const std::filesystem::path& path, std::size_t limit = std::size_t{64} << 20);

// Replaces `path` by `text` at once (AtomicFile).
void write_text_file(const std::filesystem::path& path, std::string_view text);

// Throws UserError, `what` first, where no file of this name can be made: its folder is not there or may not be
// written to. For long work, before it begins.
void require_room_for(const std::filesystem::path& path, std::string_view what);

// Makes a folder with its parents; throws Error naming it and the reason.
void make_folder(const std::filesystem::path& path);

// Holds `<folder>/.lock` while alive, so that two processes never write the same run. The lock goes with the
// process, however it ends. A folder that it had to make goes with it when nothing came into it. Throws InUseError
// naming the folder and the process that holds it.
class InUseError : public UserError {
 public:
  using UserError::UserError;
};

class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whether any process holds the folder's lock now.
  static bool is_held(const std::filesystem::path& folder);

 private:
  std::filesystem::path folder_;
  bool made_;
  int descriptor_ = -1;
};

// Lower-case hexadecimal SHA-256, fed piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::string hex();  // ends the sum

 private:
  void* context_;
};

}  // namespace headroom
