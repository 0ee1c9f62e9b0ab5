// Whether a tensor has numbers, or is a tracer's placeholder for those that a compiled function will get.
#pragma once

#include <ATen/ATen.h>

namespace headroom::ops {

// False where a tensor is traced: nothing can be asked of its numbers then, and none that is remembered fits it.
inline bool has_numbers(const at::Tensor& t) {
  return !t.is_meta() && !t.key_set().has(c10::DispatchKey::Python);
}

}  // namespace headroom::ops
