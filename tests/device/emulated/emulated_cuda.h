// An emulated CUDA device. The library registers an allocator, a device guard, hooks and operators under the CUDA
// dispatch key of a CPU build of torch. It must be loaded before torch is asked for its devices. The host computes. The
// emulation catches code that breaks the rules of a device:
// - reading or writing a device tensor's address from the host raises SIGSEGV;
// - new memory is filled with NaN (-1 in integer types);
// - calls that mix devices fail, except copies and 0-dimensional host tensors;
// - device tensors with host memory fail.
// There are no streams: every kernel runs at once, so neither races nor timing can be tested.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <string>

namespace headroom::emulated_cuda {

// Totals since the last reset, over all threads.
struct Counts {
  std::map<std::string, std::int64_t> operators;  // launched kernels by operator; views and allocations do not count
  std::map<std::string, std::int64_t> waits;      // host synchronisations by cause
  std::int64_t all_operators() const;
  std::int64_t all_waits() const;
};
Counts counts();
void reset_counts();

// Returns the host address of the device address `address`. Throws c10::Error if `address` is not on the device.
void* on_host(const void* address);

// The library's own files use these functions.
c10::Allocator* allocator();
void count_operator(const std::string& name);
void count_wait(const std::string& reason);

}  // namespace headroom::emulated_cuda
