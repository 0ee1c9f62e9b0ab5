// One file in memory, mapped twice: once where tensors say that they are, not to be touched, and once for the
// operators.
#include "memory.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <c10/util/llvmMathExtras.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pretended_cuda.h"

namespace headroom::pretended_cuda {
namespace {

constexpr std::size_t kReserved = std::size_t{1} << 36;  // of addresses: pages are made when they are first written
constexpr std::size_t kSmallest = 256;                   // as CUDA aligns
constexpr int kNew = 0xFF;                               // NaN in every floating type, -1 in whole numbers

class Memory {
 public:
  Memory() {
    const int file = memfd_create("pretended_cuda", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, kReserved) == 0, "pretended CUDA: no memory file");
    shown_ = map(file, PROT_NONE);
    host_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }

  char* take(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t>& free = free_[size];
    std::size_t at = end_;
    if (free.empty()) {
      TORCH_CHECK(end_ + size <= kReserved, "pretended CUDA: out of memory");
      end_ += size;
    } else {
      at = free.back();
      free.pop_back();
    }
    sizes_[at] = size;
    std::memset(host_ + at, kNew, size);
    return shown_ + at;
  }

  void give(const char* shown) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(shown - shown_);
    free_[sizes_.at(at)].push_back(at);
  }

  char* on_host(const char* shown) const {
    TORCH_CHECK(shown >= shown_ && shown < shown_ + kReserved,
                "pretended CUDA: a tensor's memory is not the device's, but the host's");
    return host_ + (shown - shown_);
  }

 private:
  static char* map(int file, int protection) {
    void* at = mmap(nullptr, kReserved, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "pretended CUDA: memory cannot be mapped");
    return static_cast<char*>(at);
  }
  // A power of two, or a quarter more, a half more, three quarters more.
  static std::size_t size_class(std::size_t bytes) {
    if (bytes <= kSmallest) {
      return kSmallest;
    }
    const std::size_t step = std::max(kSmallest, c10::llvm::PowerOf2Floor(bytes - 1) / 4);
    return (bytes + step - 1) / step * step;
  }

  char *shown_, *host_;
  std::mutex mutex_;
  std::size_t end_ = 0;
  std::unordered_map<std::size_t, std::size_t> sizes_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> free_;
};

// Never destroyed: tensors of other libraries' globals may outlive this one's.
Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

void release(void* shown) {
  memory().give(static_cast<char*>(shown));
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::CUDA, 0);
    if (bytes == 0) {
      return {nullptr, device};
    }
    void* shown = memory().take(bytes);
    return {shown, shown, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(pretended_cuda::on_host(to), pretended_cuda::on_host(from), bytes);
  }
};

std::mutex counting;
Counts& tally() {
  static auto* all = new Counts;
  return *all;
}

std::int64_t sum(const std::map<std::string, std::int64_t>& all) {
  std::int64_t total = 0;
  for (const auto& [name, count] : all) {
    total += count;
  }
  return total;
}

}  // namespace

c10::Allocator* allocator() {
  static auto* one = new DeviceAllocator;
  return one;
}

void* on_host(const void* address) {
  return address == nullptr ? nullptr : memory().on_host(static_cast<const char*>(address));
}

void count_operator(const std::string& name) {
  const std::lock_guard lock(counting);
  ++tally().operators[name];
}

void count_wait(const std::string& reason) {
  const std::lock_guard lock(counting);
  ++tally().waits[reason];
}

Counts counts() {
  const std::lock_guard lock(counting);
  return tally();
}

void reset_counts() {
  const std::lock_guard lock(counting);
  tally() = {};
}

std::int64_t Counts::all_operators() const {
  return sum(operators);
}

std::int64_t Counts::all_waits() const {
  return sum(waits);
}

}  // namespace headroom::pretended_cuda
