// Memory that shows who reads or writes what is not theirs: while it is in force, every tensor on the CPU is
// initialised to NaNs and lies between guards, which are looked at when it goes.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace headroom::testing {

class GuardedAllocator : public c10::Allocator {
 public:
  static GuardedAllocator& instance() {
    static GuardedAllocator* all = new GuardedAllocator;  // outlives every tensor
    return *all;
  }

  c10::DataPtr allocate(std::size_t n) override {
    const std::size_t whole = (n + 3 * kGuard - 1) / kGuard * kGuard;
    auto* base = static_cast<unsigned char*>(std::aligned_alloc(kGuard, whole));
    std::memset(base, kNan, whole);
    const std::lock_guard lock(mutex_);
    sizes_[base] = n;
    return {base + kGuard, base + kGuard, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }

  // Tensors whose guards were written to, since the last call.
  int damaged() {
    const std::lock_guard lock(mutex_);
    for (const auto& [base, n] : sizes_) {
      damaged_ += broken(base, n) ? 1 : 0;
    }
    return std::exchange(damaged_, 0);
  }

 private:
  static constexpr std::size_t kGuard = 64;    // bytes: a line of the cache, an AVX-512 vector
  static constexpr unsigned char kNan = 0xFF;  // a NaN in float64, float32 and bfloat16 when repeated

  static bool broken(const unsigned char* base, std::size_t n) {
    const std::size_t whole = (n + 3 * kGuard - 1) / kGuard * kGuard;
    const auto whole_guard = [](const unsigned char* begin, const unsigned char* end) {
      return std::all_of(begin, end, [](unsigned char byte) { return byte == kNan; });
    };
    return !whole_guard(base, base + kGuard) || !whole_guard(base + kGuard + n, base + whole);
  }
  static void release(void* data) {
    GuardedAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    const auto found = self.sizes_.find(static_cast<unsigned char*>(data) - kGuard);
    self.damaged_ += broken(found->first, found->second) ? 1 : 0;
    std::free(found->first);
    self.sizes_.erase(found);
  }

  std::mutex mutex_;
  std::map<unsigned char*, std::size_t> sizes_;
  int damaged_ = 0;
};

class GuardedMemory {
 public:
  GuardedMemory() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(&GuardedAllocator::instance(), kFirst); }
  ~GuardedMemory() { c10::SetCPUAllocator(before_, kFirst); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  static int damaged() { return GuardedAllocator::instance().damaged(); }

 private:
  static constexpr std::uint8_t kFirst = 255;
  c10::Allocator* before_;
};

}  // namespace headroom::testing
