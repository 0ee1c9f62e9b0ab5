// Whether a tensor is one to compute with, or stands for those that a compiled function will meet.
#pragma once

#include <ATen/ATen.h>

namespace headroom::ops {

// False where a tensor is traced: nothing can be asked of its numbers then, and none that is remembered fits it.
inline bool has_numbers(const at::Tensor& t) {
  return !t.is_meta() && !t.key_set().has(c10::DispatchKey::Python);
}

}  // namespace headroom::ops
