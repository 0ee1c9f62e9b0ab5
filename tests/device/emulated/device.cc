// Implements the emulated device's memory, counters, device guard and hooks.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <c10/util/llvmMathExtras.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "emulated_cuda.h"

namespace headroom::emulated_cuda {
namespace {

constexpr std::size_t kReserved = std::size_t{1} << 36;  // address space; pages are allocated on first write
constexpr std::size_t kSmallest = 256;                   // CUDA's alignment
constexpr int kFresh = 0xFF;                             // NaN in every floating type, -1 in integer types

// Maps one memory file twice: inaccessible at the addresses of device tensors, and accessible for the host's operators.
class Memory {
 public:
  Memory() {
    const int file = memfd_create("emulated_cuda", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, kReserved) == 0, "emulated CUDA: no memory file");
    device_ = map(file, PROT_NONE);
    host_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }

  char* allocate(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t>& reusable = free_[size];
    std::size_t at = end_;
    if (reusable.empty()) {
      TORCH_CHECK(end_ + size <= kReserved, "emulated CUDA: out of memory");
      end_ += size;
    } else {
      at = reusable.back();
      reusable.pop_back();
    }
    sizes_[at] = size;
    std::memset(host_ + at, kFresh, size);
    return device_ + at;
  }

  void free(const char* address) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(address - device_);
    free_[sizes_.at(at)].push_back(at);
  }

  char* on_host(const char* address) const {
    TORCH_CHECK(address >= device_ && address < device_ + kReserved,
                "emulated CUDA: a tensor's memory is not the device's, but the host's");
    return host_ + (address - device_);
  }

 private:
  static char* map(int file, int protection) {
    void* at = mmap(nullptr, kReserved, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "emulated CUDA: memory cannot be mapped");
    return static_cast<char*>(at);
  }
  // Rounds up to 4/4, 5/4, 6/4 or 7/4 of a power of two.
  static std::size_t size_class(std::size_t bytes) {
    if (bytes <= kSmallest) {
      return kSmallest;
    }
    const std::size_t step = std::max(kSmallest, c10::llvm::PowerOf2Floor(bytes - 1) / 4);
    return (bytes + step - 1) / step * step;
  }

  char *device_, *host_;
  std::mutex mutex_;
  std::size_t end_ = 0;
  std::unordered_map<std::size_t, std::size_t> sizes_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> free_;
};

// The object is never destroyed, because tensors in other libraries' globals may be freed later.
Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

void release(void* address) {
  memory().free(static_cast<char*>(address));
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::CUDA, 0);
    if (bytes == 0) {
      return {nullptr, device};
    }
    void* address = memory().allocate(bytes);
    return {address, address, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(emulated_cuda::on_host(to), emulated_cuda::on_host(from), bytes);
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

namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return stream(); }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream /*other*/) const noexcept override { return stream(); }
  void record(void** /*event*/, const c10::Stream& /*on*/, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*on*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override { count_wait("an event"); }
  void synchronizeStream(const c10::Stream& /*on*/) const override { count_wait("a stream"); }
  void synchronizeDevice(const c10::DeviceIndex /*device*/) const override { count_wait("the device"); }

 private:
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

[[maybe_unused]] const bool kHasMemory = (c10::SetAllocator(c10::DeviceType::CUDA, allocator()), true);

}  // namespace
}  // namespace headroom::emulated_cuda

namespace at {

struct EmulatedHooks final : CUDAHooksInterface {
  explicit EmulatedHooks(CUDAHooksArgs /*none*/) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex /*device*/) const override {}
  DeviceIndex exchangeDevice(DeviceIndex /*device*/) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex /*device*/) const override { return 0; }
  // Random numbers come from a host generator.
  const Generator& getDefaultGenerator(DeviceIndex /*device*/) const override {
    static const auto* one = new Generator(make_generator<CPUGeneratorImpl>());
    return *one;
  }
  Allocator* getCUDADeviceAllocator() const override { return headroom::emulated_cuda::allocator(); }
  std::string showConfig() const override { return "a emulated device: computed on the host"; }
  void deviceSynchronize(DeviceIndex /*device*/) const override { headroom::emulated_cuda::count_wait("the device"); }
};

C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, EmulatedHooks)

}  // namespace at
