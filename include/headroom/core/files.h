// Atomic writing, memory-mapped reading and locking of files; SHA-256.
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

// A regular file mapped read-only into memory. The constructor throws UserError naming the path if the file cannot be
// mapped.
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

// Installs a handler for SIGBUS: reading a part of a mapped file that another program has truncated then ends the
// process with status 1 and a message that names the file. Call it in programs only; a library leaves the signal to its
// user.
void report_truncated_files();

// Writes a file atomically. Data goes to `<path>.tmp-<pid>-<number>`, and commit() moves it to `path` (fsync, rename,
// fsync of the folder). Without commit(), the destructor removes the temporary file. The constructor also removes
// temporary files for the same path that killed processes have left behind. Throws Error naming `path` and the system's
// reason, and UserError if `path` exists and is not a regular file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void write_at(std::size_t offset, std::span<const std::byte> bytes);  // overwrites bytes that were written before
  std::size_t size() const { return size_; }
  void commit();

  // Sets the size of a file that several processes write. Each process, on any machine, can then write its ranges to
  // temporary() with write_ranges().
  void resize(std::size_t size);
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  [[noreturn]] void refuse(const char* doing) const;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// Bytes to write at an offset of a file.
struct FileRange {
  std::size_t offset = 0;
  std::span<const std::byte> bytes;
};
// Writes ranges of an existing file and syncs it. Throws Error naming the file and the system's reason.
void write_ranges(const std::filesystem::path& file, const std::vector<FileRange>& ranges);

// Removes temporary files in `folder` that no living process writes: those for the file `target`, or all if `target` is
// empty. The folder need not exist.
void remove_leftovers(const std::filesystem::path& folder, std::string_view target = {});

// Returns the content of a file of at most `limit` bytes. Throws UserError naming the path.
std::string read_text_file(const std::filesystem::path& path, std::size_t limit = std::size_t{64} << 20);

// Writes a file atomically, with AtomicFile.
void write_text_file(const std::filesystem::path& path, std::string_view text);

// Throws UserError "<what>: ..." if the folder of `path` does not exist or is not writable. Call it before long work.
void require_writable(const std::filesystem::path& path, std::string_view what);

// Returns the absolute path without "." and ".." and without a slash at its end, so that a path has one spelling.
std::filesystem::path absolute_path(const std::filesystem::path& path);

// Creates a folder and its parents. Throws Error naming the folder and the reason; UserError if a file exists at the
// path or a part of the path is "~".
void make_folder(const std::filesystem::path& path);

class InUseError : public UserError {
 public:
  using UserError::UserError;
};

// Holds a lock on `<folder>/.lock` during its lifetime, so that two processes never write the same run. The system
// releases the lock when the process exits. The constructor creates the folder if needed; the destructor removes a
// folder that it created and that is still empty. Throws InUseError naming the folder and the process that holds the
// lock.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Returns whether any process currently holds the lock.
  static bool is_held(const std::filesystem::path& folder);

 private:
  std::filesystem::path folder_;
  bool made_;
  int descriptor_ = -1;
};

// Computes a SHA-256 incrementally.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::string hex();  // returns the digest in lower-case hexadecimal; must be the last call

 private:
  void* context_;
};

// Returns the digest of the concatenated parts, text or bytes.
template <class... Parts>
std::string sha256_of(const Parts&... parts) {
  Sha256 hash;
  (hash.update(parts), ...);
  return hash.hex();
}

// Returns the SHA-256 of a file's bytes. The hash of a large file is cached in cache_folder() under its device, inode,
// size and time of last change (ctime), which no program can set. Throws UserError if the file cannot be read.
std::string content_sha256(const std::filesystem::path& path);

}  // namespace headroom
