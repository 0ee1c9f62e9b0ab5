#include "mapped_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <utility>

namespace headroom::parallel {
namespace {

constexpr long kLongestWait = 20'000'000;  // nanoseconds; the caller then checks that the other process is running

std::string unique_name() {
  std::random_device device;
  return fmt::format("headroom-{:08x}{:08x}{:08x}", device(), device(), device());
}

// Returns whether `path` is the memory called `name`. On another machine the path is missing or refers to another file.
bool leads_to(const std::string& path, const std::string& name) {
  std::array<char, 256> target{};
  return ::readlink(path.c_str(), target.data(), target.size() - 1) > 0 &&
         target.data() == fmt::format("/memfd:{} (deleted)", name);
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

std::shared_ptr<std::byte> map_file(const Descriptor& file, std::size_t begin, std::size_t size, bool writable) {
  void* const data = ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.get(),
                            static_cast<off_t>(begin));
  if (data == MAP_FAILED) {
    return nullptr;
  }
  return {static_cast<std::byte*>(data), [size](std::byte* mapping) { ::munmap(mapping, size); }};
}

NamedMemory::NamedMemory(std::size_t size) : name(unique_name()), file(::memfd_create(name.c_str(), MFD_CLOEXEC)) {
  if (file && ::ftruncate(file.get(), static_cast<off_t>(size)) == 0) {
    path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  }
}

PeerMemory::PeerMemory(int pid, const std::string& path, const std::string& name) {
  Descriptor running(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (running && leads_to(path, name)) {
    file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    process = std::move(running);
  }
}

bool PeerMemory::is_running() const {
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) <= 0;
}

std::string PeerMemory::read(std::int64_t begin, void* into, std::size_t size) const {
  for (auto* to = static_cast<char*>(into); size > 0;) {
    const ssize_t got = ::pread(file.get(), to, size, begin);
    if (got == 0 || (got < 0 && errno != EINTR)) {
      return got == 0 ? "its memory ends early" : std::strerror(errno);
    }
    const std::size_t done = got > 0 ? static_cast<std::size_t>(got) : 0;
    to += done;
    begin += static_cast<std::int64_t>(done);
    size -= done;
  }
  return "";
}

void wait_while(const std::uint32_t* word, std::uint32_t value) {
  const timespec longest{.tv_sec = 0, .tv_nsec = kLongestWait};
  ::syscall(SYS_futex, word, FUTEX_WAIT, value, &longest, nullptr, 0);
}

void wake_all(const std::uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace headroom::parallel
