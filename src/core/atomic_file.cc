#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// The number keeps two files under construction for one target apart.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp-{}-{}", ::getpid(), count++);
  return temporary;
}

// One write call moves at most this much, well below what the system caps it at.
constexpr std::size_t kPiece = std::size_t{1} << 30;

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), temporary_(temporary_beside(path_)) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  descriptor_ = ::open(temporary_.c_str(), kFlags, 0666);
  if (descriptor_ < 0 && errno == EEXIST) {  // left by a process that was killed and had our number
    ::unlink(temporary_.c_str());
    descriptor_ = ::open(temporary_.c_str(), kFlags, 0666);
  }
  if (descriptor_ < 0) {
    refuse("created");
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
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      refuse("written");
    }
    size_ += static_cast<std::size_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::write_at(std::size_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    fail("{}: {} bytes at {} lie outside the {} written before", path_.string(), bytes.size(), offset, size_);
  }
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      refuse("written");
    }
    offset += static_cast<std::size_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) {
    fail("{}: is already committed", path_.string());
  }
  if (::fsync(descriptor_) != 0) {
    refuse("written");
  }
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) {
    refuse("written");
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    refuse("put in place");
  }
  temporary_.clear();
  // The new name is safe only when the folder is. Some file systems cannot sync folders: nothing to do then.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    const int synced = ::fsync(folder);
    const int reason = errno;
    ::close(folder);
    if (synced != 0 && reason != EINVAL && reason != ENOTSUP) {
      errno = reason;
      refuse("put in place");
    }
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail("{}: the folder cannot be made: {}", path.string(), error.message());
  }
  if (!std::filesystem::is_directory(path, error)) {
    fail("{}: the folder cannot be made: a file has that name", path.string());
  }
}

}  // namespace headroom
