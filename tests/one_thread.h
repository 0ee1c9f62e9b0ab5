// Runs tests of tiny tensors on one thread; several threads would mostly wait for each other.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

namespace headroom {

inline const bool kOneThread = [] {
  at::set_num_threads(1);
  return true;
}();

}  // namespace headroom
