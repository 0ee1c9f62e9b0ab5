#include "shared_buffer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "foundation/core/ceil_div.h"
#include "headroom/core/json.h"

namespace headroom::parallel {
namespace {

constexpr std::size_t kPage = 1 << 16;       // a multiple of every system's page size
constexpr long kLongestWaitNs = 20'000'000;  // the caller then checks that the other process is running

std::size_t padded_bytes(std::int64_t elements) {
  return round_up(static_cast<std::size_t>(elements) * sizeof(float), kPage);
}

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Maps bytes [begin, begin + size) of a file; null if the system refuses.
std::shared_ptr<std::byte> map_file(const Descriptor& file, std::size_t begin, std::size_t size, int protection) {
  void* const data = ::mmap(nullptr, size, protection, MAP_SHARED, file.get(), static_cast<off_t>(begin));
  if (data == MAP_FAILED) {
    return nullptr;
  }
  return {static_cast<std::byte*>(data), [size](std::byte* mapping) { ::munmap(mapping, size); }};
}

// A zero-filled in-memory file with a unique name. `path` is empty if the system has no such files.
struct NamedMemory {
  explicit NamedMemory(std::size_t size) : name(unique_name()), file(::memfd_create(name.c_str(), MFD_CLOEXEC)) {
    if (file && ::ftruncate(file.get(), static_cast<off_t>(size)) == 0) {
      path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
    }
  }
  static std::string unique_name() {
    std::random_device device;
    return fmt::format("headroom-{:08x}{:08x}{:08x}", device(), device(), device());
  }
  std::string name, path;
  Descriptor file;
};

// Read access to another process's NamedMemory. `file` is empty if that process is on another machine, where the path
// is missing or leads to another file, or is not visible.
struct PeerMemory {
  PeerMemory() = default;
  PeerMemory(int pid, const std::string& path, const std::string& name) {
    Descriptor running(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    std::array<char, 256> target{};
    if (running && ::readlink(path.c_str(), target.data(), target.size() - 1) > 0 &&
        target.data() == fmt::format("/memfd:{} (deleted)", name)) {
      file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      process = std::move(running);
    }
  }
  bool is_running() const {
    pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ended, 1, 0) <= 0;
  }
  // Returns an empty string, or the reason for the failure.
  std::string read(std::int64_t begin, void* into, std::size_t size) const {
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
  Descriptor file, process;
};

// Blocks until a word in shared memory differs from `value`, or a short timeout expires.
void wait_while(const std::uint32_t* word, std::uint32_t value) {
  const timespec longest{.tv_sec = 0, .tv_nsec = kLongestWaitNs};
  ::syscall(SYS_futex, word, FUTEX_WAIT, value, &longest, nullptr, 0);
}

void wake_all(const std::uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// This rank's buffer, followed by one counter per reader and tag, and the mapped memory of the other ranks on this
// machine.
class SharedBuffer::Memory {
 public:
  Memory(GlooGroup& group, const Shape& shape)
      : tags_(shape.tags),
        elements_bytes_(padded_bytes(shape.elements)),
        counters_bytes_(static_cast<std::size_t>(group.size()) * shape.tags * sizeof(std::uint32_t)) {
    if (group.size() > 1) {
      own_.emplace(elements_bytes_ + counters_bytes_);
      own_data_ = own_->path.empty()
                      ? nullptr
                      : map_file(own_->file, 0, elements_bytes_ + counters_bytes_, PROT_READ | PROT_WRITE);
    }
    elements_ = own_data_ ? at::from_blob(
                                own_data_.get(), {shape.elements}, [kept = own_data_](void*) {}, at::kFloat)
                          : at::zeros({shape.elements});
    open_peers(group);
  }

  const at::Tensor& elements() const { return elements_; }
  bool reads_memory_of(int rank) const { return peers_[static_cast<std::size_t>(rank)].counters != nullptr; }
  bool is_read_by(int rank) const { return readers_[static_cast<std::size_t>(rank)]; }
  const PeerMemory& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)].memory; }

  void signal(std::uint32_t tag, int to) const {
    auto* const counter = reinterpret_cast<std::uint32_t*>(own_data_.get() + elements_bytes_) + place(tag, to);
    __atomic_add_fetch(counter, 1, __ATOMIC_RELEASE);
    wake_all(counter);
  }

  std::uint32_t next_count(std::uint32_t tag, int from) { return ++expected_[static_cast<std::size_t>(from)][tag]; }

  // Waits for a short time; returns whether the signal has arrived.
  bool has_arrived(const Incoming& incoming, int reader) const {
    const auto* const counter =
        reinterpret_cast<const std::uint32_t*>(peers_[static_cast<std::size_t>(incoming.from_)].counters.get()) +
        place(incoming.tag_, reader);
    const auto reached = [&](std::uint32_t now) { return static_cast<std::int32_t>(now - incoming.count_) >= 0; };
    const std::uint32_t now = __atomic_load_n(counter, __ATOMIC_ACQUIRE);
    if (reached(now)) {
      return true;
    }
    wait_while(counter, now);
    return reached(__atomic_load_n(counter, __ATOMIC_ACQUIRE));
  }

 private:
  struct Peer {
    PeerMemory memory;
    std::shared_ptr<std::byte> counters;  // null if the memory cannot be read
  };

  std::size_t place(std::uint32_t tag, int reader) const { return static_cast<std::size_t>(reader) * tags_ + tag; }

  void open_peers(GlooGroup& group) {
    const bool open = own_data_ != nullptr;
    const std::vector<std::string> all = group.gather(
        to_json_line({{"pid", ::getpid()}, {"path", open ? own_->path : ""}, {"name", open ? own_->name : ""}}));
    std::string readable;  // '1' for each rank whose memory this rank can read
    for (int rank = 0; rank < group.size(); ++rank) {
      Peer& peer = peers_.emplace_back();
      const Json json = parse_json(all[static_cast<std::size_t>(rank)], "ranks");
      if (rank != group.rank()) {
        peer.memory = PeerMemory(json.at("pid").get<int>(), json.at("path").get<std::string>(),
                                 json.at("name").get<std::string>());
        peer.counters =
            peer.memory.file ? map_file(peer.memory.file, elements_bytes_, counters_bytes_, PROT_READ) : nullptr;
      }
      readable += peer.counters ? '1' : '0';
      expected_.emplace_back(peer.counters ? tags_ : 0, 0);
    }
    for (const std::string& theirs : group.gather(readable)) {
      readers_.push_back(theirs[static_cast<std::size_t>(group.rank())] == '1');
    }
  }

  std::uint32_t tags_;
  std::size_t elements_bytes_, counters_bytes_;
  std::optional<NamedMemory> own_;
  std::shared_ptr<std::byte> own_data_;
  at::Tensor elements_;
  std::vector<Peer> peers_;  // by rank
  std::vector<bool> readers_;
  std::vector<std::vector<std::uint32_t>> expected_;  // by rank and tag: counter value of the last requested transfer
};

SharedBuffer::SharedBuffer(GlooGroup& group, const Shape& shape)
    : group_(group),
      first_tag_(shape.first_tag),
      memory_(std::make_unique<Memory>(group, shape)),
      elements_(memory_->elements()) {}

SharedBuffer::~SharedBuffer() = default;

bool SharedBuffer::reads_memory_of(int peer) const {
  return memory_->reads_memory_of(peer);
}

bool SharedBuffer::is_read_by(int peer) const {
  return memory_->is_read_by(peer);
}

Transfer SharedBuffer::send(const Range& range, int to) const {
  if (!is_read_by(to)) {
    return group_.send(elements_.narrow(0, range.begin, range.count()), to, first_tag_ + range.tag);
  }
  group_.add_traffic({.sent = range.count() * static_cast<std::int64_t>(sizeof(float))});
  return signal(range.tag, to);
}

Transfer SharedBuffer::signal(std::uint32_t tag, int to) const {
  if (!is_read_by(to)) {
    return group_.send(at::zeros({1}, at::kByte), to, kFirstUncountedTag + first_tag_ + tag);
  }
  memory_->signal(tag, to);
  return {};
}

SharedBuffer::Incoming SharedBuffer::receive(const Range& range, int from, const at::Tensor& staging) const {
  if (reads_memory_of(from)) {
    group_.add_traffic({.received = range.count() * static_cast<std::int64_t>(sizeof(float))});
    Incoming incoming = receive_signal(range.tag, from);
    incoming.begin_ = range.begin;
    return incoming;
  }
  Incoming incoming;
  incoming.staged_ = staging.narrow(0, 0, range.count());
  incoming.transfer_ = group_.receive(incoming.staged_, from, first_tag_ + range.tag);
  return incoming;
}

SharedBuffer::Incoming SharedBuffer::receive_signal(std::uint32_t tag, int from) const {
  Incoming incoming;
  incoming.buffer_ = this;
  incoming.from_ = from;
  incoming.tag_ = tag;
  if (reads_memory_of(from)) {
    incoming.count_ = memory_->next_count(tag, from);
  } else {
    incoming.transfer_ = group_.receive(at::empty({1}, at::kByte), from, kFirstUncountedTag + first_tag_ + tag);
  }
  return incoming;
}

void SharedBuffer::wait_for(const Incoming& incoming) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    // Checked before the counter, so that a signal sent just before the peer exits is not lost.
    const bool running = memory_->peer(incoming.from_).is_running();
    if (memory_->has_arrived(incoming, group_.rank())) {
      return;
    }
    if (!running) {
      group_.report_failed_peer(incoming.from_, "its process has ended");
    }
    if (Clock::now() - start > group_.timeout()) {
      group_.report_failed_peer(incoming.from_, "it took longer than train.timeout");
    }
  }
}

void SharedBuffer::Incoming::wait() {
  if (transfer_) {
    transfer_->wait();
  } else if (buffer_ != nullptr) {
    buffer_->wait_for(*this);
  }
}

at::Tensor SharedBuffer::Incoming::take(std::int64_t begin, const at::Tensor& place) const {
  if (staged_.defined()) {
    return staged_.narrow(0, begin, place.numel());
  }
  const std::int64_t at = (begin_ + begin) * static_cast<std::int64_t>(sizeof(float));
  const std::string why = buffer_->memory_->peer(from_).read(at, place.mutable_data_ptr(), place.nbytes());
  if (!why.empty()) {
    throw PeerError(fmt::format("cannot read the memory of {}: {}", buffer_->group_.name_of(from_), why));
  }
  return place;
}

}  // namespace headroom::parallel
