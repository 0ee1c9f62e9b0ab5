// For tests of tiny tensors, where several threads would only wait for each other.
#pragma once

#include <ATen/Parallel.h>

namespace headroom {

inline const bool kOneThread = [] {
  at::set_num_threads(1);
  return true;
}();

}  // namespace headroom
