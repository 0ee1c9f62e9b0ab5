// An emulated CUDA device. The library registers an allocator, a device guard, hooks and operators under the CUDA
// dispatch key of a CPU build of torch; it must be loaded before torch is asked for its devices. The host computes. The
// emulation catches code that does not keep to the device:
// - reading or writing a tensor's address from the host is a SIGSEGV;
// - new memory is filled with NaN (-1 in integer types);
// - calls that mix devices fail, except copies and 0-dimensional host tensors;
// - tensors of the device with host memory fail.
// There are no streams: every kernel runs at once, so that neither races nor timing can be tested.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <string>

namespace headroom::emulated_cuda {

// Counts since the last reset, over all threads.
struct Counts {
  std::map<std::string, std::int64_t> operators;  // calls that launch a kernel, by name; not views and allocations
  std::map<std::string, std::int64_t> waits;      // host synchronisations, by cause
  std::int64_t all_operators() const;
  std::int64_t all_waits() const;
};
Counts counts();
void reset_counts();

// The host address of the device's memory at `address`. Throws c10::Error if `address` is not the device's.
void* on_host(const void* address);

// For the library itself.
c10::Allocator* allocator();
void count_operator(const std::string& name);
void count_wait(const std::string& reason);

}  // namespace headroom::emulated_cuda
