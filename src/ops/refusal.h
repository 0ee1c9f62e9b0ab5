// Why a tensor is nothing for the CPU's fused operators, in the words that all of them use.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string>

namespace headroom::ops {

// Empty for float32 and bfloat16 on the CPU.
inline std::string cpu_float_refusal(const at::Tensor& t) {
  if (!t.is_cpu()) {
    return "the tensors are not on the CPU";
  }
  const at::ScalarType type = t.scalar_type();
  if (type == at::kDouble) {
    return "float64 has the reference only";
  }
  return type == at::kFloat || type == at::kBFloat16 ? ""
                                                     : fmt::format("{} has the reference only", at::toString(type));
}

}  // namespace headroom::ops
