// Memory that processes on the same machine can read from each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace headroom::parallel {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Maps bytes [begin, begin + size) of a file; null if the system refuses.
std::shared_ptr<std::byte> map_file(const Descriptor& file, std::size_t begin, std::size_t size, bool writable);

// A zero-filled in-memory file with a unique name.
struct NamedMemory {
  explicit NamedMemory(std::size_t size);
  std::string name, path;  // path is empty if the system has no such files
  Descriptor file;
};

// Read access to another process's NamedMemory. `file` is empty if that process is on another machine or not visible.
struct PeerMemory {
  PeerMemory() = default;
  PeerMemory(int pid, const std::string& path, const std::string& name);
  Descriptor file, process;
  bool is_running() const;
  // Returns an empty string, or the reason for the failure.
  std::string read(std::int64_t begin, void* into, std::size_t size) const;
};

// wait_while() blocks until a word in shared memory differs from `value`, or a short timeout expires. wake_all() wakes
// all waiters.
void wait_while(const std::uint32_t* word, std::uint32_t value);
void wake_all(const std::uint32_t* word);

}  // namespace headroom::parallel
