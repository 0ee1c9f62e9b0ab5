// Which numbers the fused operators take on the CPU, in the words that all of them use.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>

#include "headroom/kernels/cpu/bfloat16.h"

namespace headroom::ops {

using kernels::multiplies_bfloat16;

// Empty for float32 and bfloat16.
inline std::string float_refusal(const at::Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  if (type == at::kDouble) {
    return "float64 has the reference only";
  }
  return type == at::kFloat || type == at::kBFloat16 ? ""
                                                     : fmt::format("{} has the reference only", at::toString(type));
}

}  // namespace headroom::ops
