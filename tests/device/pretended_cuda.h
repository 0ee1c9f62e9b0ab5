// A CUDA device that is not there: a library that, loaded before anything asks torch for its devices, registers
// allocator, guard, hooks and operators under the CUDA key of a CPU build of torch. What computes is the host; what is
// checked is that code keeps to the device:
// - the address that a tensor shows may not be touched: reading or writing it from the host is a SIGSEGV;
// - memory handed out is full of NaN (-1 for whole numbers), so that nothing relies on what is there;
// - a call that mixes devices is refused, but for copies and for a number (a tensor without axes) of the host;
// - a tensor whose memory is the host's is refused.
// It has no streams: what a kernel would do later is done at once, so a race is not seen, nor how long anything takes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace headroom::pretended_cuda {

// Since the last reset, over all threads.
struct Counts {
  std::map<std::string, std::int64_t> operators;  // calls that launch a kernel, by name: views and memory alone do not
  std::map<std::string, std::int64_t> waits;      // by what made the host wait until the device is done
  std::int64_t all_operators() const;
  std::int64_t all_waits() const;
};
Counts counts();
void reset_counts();

// Where the host may touch what the device shows at `address`. Throws c10::Error for an address of another memory.
void* on_host(const void* address);

}  // namespace headroom::pretended_cuda
