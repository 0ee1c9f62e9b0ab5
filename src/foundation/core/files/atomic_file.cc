#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

constexpr const char* kTemporary = ".tmp-";

// Returns a new temporary name. The count distinguishes several files that this process writes for the same path.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path temporary = path;
  temporary += fmt::format("{}{}-{}", kTemporary, ::getpid(), count++);
  return temporary;
}

// Locks a temporary file for the process that writes it. The system releases the lock when the process exits.
bool lock(int descriptor, int how) {
  int locked = -1;
  do {
    locked = ::flock(descriptor, how);
  } while (locked != 0 && errno == EINTR);
  return locked == 0;
}

// Returns whether the text has only digits and hyphens, as in "123-0".
bool is_numbers(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789-") == std::string_view::npos;
}

void remove_unowned(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) {
    return;
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && lock(descriptor, LOCK_EX | LOCK_NB)) {
    ::unlink(path.c_str());
  }
  ::close(descriptor);
}

// Maximum number of bytes per write call, well below the system's limit.
constexpr std::size_t kPiece = std::size_t{1} << 30;

// Returns false and sets errno if a write fails.
bool write_all(int descriptor, FileRange range) {
  while (!range.bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor, range.bytes.data(), std::min(range.bytes.size(), kPiece),
                                   static_cast<off_t>(range.offset));
    if (count < 0 && errno != EINTR) {
      return false;
    }
    if (count > 0) {
      range.offset += static_cast<std::size_t>(count);
      range.bytes = range.bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  return true;
}

}  // namespace

void write_ranges(const std::filesystem::path& file, const std::vector<FileRange>& ranges) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  bool good = descriptor >= 0;
  for (const FileRange& range : ranges) {
    good = good && write_all(descriptor, range);
  }
  good = good && ::fsync(descriptor) == 0;
  const int reason = errno;
  const bool closed = descriptor < 0 || ::close(descriptor) == 0;
  if (!good || !closed) {
    fail("{}: cannot be written: {}", file.string(), std::strerror(good ? errno : reason));
  }
}

void remove_leftovers(const std::filesystem::path& folder, std::string_view target) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t at = name.rfind(kTemporary);
    const bool ours =
        at != std::string::npos && is_numbers(std::string_view(name).substr(at + std::strlen(kTemporary)));
    if (ours && (target.empty() || std::string_view(name).substr(0, at) == target)) {
      remove_unowned(entry->path());
    }
  }
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  std::error_code unknown;
  if (const auto there = std::filesystem::status(path_, unknown);
      std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    user_error("{}: cannot overwrite: it is a {}", path_.string(),
               std::filesystem::is_directory(there) ? "directory" : "device or another special file");
  }
  remove_leftovers(folder_of(path_), path_.filename().string());
  for (struct stat status{}; status.st_nlink == 0;) {
    temporary_ = temporary_beside(path_);
    descriptor_ = ::open(temporary_.c_str(), kFlags, 0666);
    if (descriptor_ < 0 && errno == EEXIST) {  // a process with the same id on another machine writes here too
      continue;
    }
    if (descriptor_ < 0) {
      refuse("created");
    }
    // Until the file is locked, another process may remove it as a leftover; its link count is then 0.
    lock(descriptor_, LOCK_EX);
    if (::fstat(descriptor_, &status) != 0) {
      refuse("created");
    }
    if (status.st_nlink == 0) {
      ::close(descriptor_);
    }
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::refuse(const char* doing) const {
  fail("{}: cannot be {}: {}", path_.string(), doing, std::strerror(errno));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!write_all(descriptor_, {size_, bytes})) {
    refuse("written");
  }
  size_ += bytes.size();
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::write_at(std::size_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    fail("{}: {} bytes at {} are outside of the {} bytes written before", path_.string(), bytes.size(), offset, size_);
  }
  if (!write_all(descriptor_, {offset, bytes})) {
    refuse("written");
  }
}

void AtomicFile::resize(std::size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    refuse("written");
  }
  size_ = size;
}

void AtomicFile::commit() {
  if (descriptor_ < 0) {
    fail("{}: already committed", path_.string());
  }
  if (::fsync(descriptor_) != 0) {
    refuse("written");
  }
  // The file is renamed while still locked, so that no process can remove it as a leftover.
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    refuse("renamed");
  }
  temporary_.clear();
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) {
    refuse("written");
  }
  // The new name is durable once the directory is synced. Some file systems cannot sync directories.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    const int synced = ::fsync(folder);
    const int reason = errno;
    ::close(folder);
    if (synced != 0 && reason != EINVAL && reason != ENOTSUP) {
      errno = reason;
      refuse("renamed");
    }
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void require_writable(const std::filesystem::path& path, std::string_view what) {
  const std::filesystem::path folder = folder_of(path);
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown)) {
    user_error("{}: {}: the directory {} does not exist", what, printable(path.string()), printable(folder.string()));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    user_error("{}: {}: the directory {} is not writable", what, printable(path.string()), printable(folder.string()));
  }
}

std::filesystem::path absolute_path(const std::filesystem::path& path) {
  std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
  return normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  for (std::filesystem::path there = path; !there.empty() && there != there.parent_path();
       there = there.parent_path()) {
    if (there.filename() == "~") {
      user_error("{}: cannot create directory: \"~\" is not expanded here; give the whole path", path.string());
    }
    if (std::filesystem::exists(there, error) && !std::filesystem::is_directory(there, error)) {
      user_error("{}: cannot create directory: {} is a file", path.string(), there == path ? "it" : there.string());
    }
  }
  std::filesystem::create_directories(path, error);
  if (error) {
    fail("{}: cannot create directory: {}", path.string(), error.message());
  }
}

}  // namespace headroom
