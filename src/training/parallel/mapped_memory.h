// Memory of this process that others of the same machine can open, and theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace headroom::parallel {

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

// Mapped bytes [begin, begin + size) of a file; null where the system refuses.
std::shared_ptr<std::byte> map_file(const Descriptor& file, std::size_t begin, std::size_t size, bool writable);

// A file in memory of so many zeros, under a name that no other process gives.
struct NamedMemory {
  explicit NamedMemory(std::size_t size);
  std::string name, path;  // path: empty where the system has no such files
  Descriptor file;
};

// Another process's, for reading; empty where it is not on this machine, or not to be seen from here.
struct PeerMemory {
  PeerMemory() = default;
  PeerMemory(int pid, const std::string& path, const std::string& name);
  Descriptor file, process;
  bool lives() const;  // the process
  // Returns what the system says of a failure, or nothing.
  std::string read(std::int64_t begin, void* into, std::size_t size) const;
};

// A word that processes share: waits, some time at most, until it is another one; wakes those that wait for it.
void wait_while(const std::uint32_t* word, std::uint32_t value);
void wake_all(const std::uint32_t* word);

}  // namespace headroom::parallel
