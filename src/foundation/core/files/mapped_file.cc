#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {
namespace {

// The mappings of this process, for the signal handler, which may neither lock nor allocate. A mapping that finds no
// free slot is not reported.
struct MappedRange {
  std::atomic<const std::byte*> begin = nullptr;  // null: the slot is free
  std::atomic<std::size_t> size = 0;
  std::array<char, 512> path = {};
};
std::array<MappedRange, 64> mappings;

void register_mapping(const std::byte* begin, std::size_t size, const std::filesystem::path& path) {
  const std::string name = path.string();
  for (MappedRange& mapping : mappings) {
    std::size_t free = 0;
    if (mapping.size.compare_exchange_strong(free, size)) {
      const std::size_t length = std::min(name.size(), mapping.path.size() - 1);
      std::copy_n(name.begin(), length, mapping.path.begin());
      mapping.path[length] = '\0';
      mapping.begin = begin;
      return;
    }
  }
}

void unregister_mapping(const std::byte* begin) {
  for (MappedRange& mapping : mappings) {
    if (mapping.begin == begin) {
      mapping.begin = nullptr;
      mapping.size = 0;
      return;
    }
  }
}

void write_error(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void report_truncated_file(int number, siginfo_t* info, void* /*context*/) {
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  for (const MappedRange& mapping : mappings) {
    const std::byte* const begin = mapping.begin;
    if (begin != nullptr && begin <= address && address < begin + mapping.size) {
      write_error(::isatty(STDERR_FILENO) != 0 ? "\nheadroom: " : "headroom: ");
      write_error(mapping.path.data());
      write_error(": another program made this file shorter while it was being read; restore it and start again\n");
      ::_exit(1);
    }
  }
  std::signal(number, SIG_DFL);  // the access is repeated
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) {
      ::close(number);
    }
  }
};

// O_NONBLOCK avoids waiting for the writer of a named pipe.
Descriptor open_for_reading(const std::filesystem::path& path) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      user_error("{}: no such file", path.string());
    }
    user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
  return {number};
}

struct stat status_of(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.number, &status) != 0) {
    user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    user_error("{}: is a directory; expected a file", path.string());
  }
  return status;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file = open_for_reading(path);
  const struct stat status = status_of(file, path);
  if (!S_ISREG(status.st_mode)) {
    user_error("{}: is not a regular file", path.string());
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) {
    return;
  }
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) {
    user_error("{}: cannot be mapped into memory: {}", path.string(), std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  register_mapping(data_, size_, path_);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    unregister_mapping(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void report_truncated_files() {
  struct sigaction action {};
  action.sa_sigaction = report_truncated_file;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

std::string read_text_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor file = open_for_reading(path);
  const struct stat status = status_of(file, path);
  std::string text;
  // The size is only a hint: it is 0 for files under /proc, and a file may grow while it is read.
  const std::size_t hint = S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) : 0;
  std::size_t filled = 0;
  text.resize(std::min(hint, limit) + 1);
  for (;;) {
    const ssize_t count = ::read(file.number, text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
    }
    if (count == 0) {
      break;
    }
    filled += static_cast<std::size_t>(count);
    if (filled > limit) {
      user_error("{}: is too large for a text file: the limit is {} bytes", path.string(), limit);
    }
    if (filled == text.size()) {
      text.resize(std::min(2 * text.size(), limit) + 1);
    }
  }
  text.resize(filled);
  return text;
}

}  // namespace headroom
