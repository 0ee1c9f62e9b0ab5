// Which numbers the fused operators take on the CPU, in the words that all of them use.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "headroom/core/system.h"

namespace headroom::ops {

// Whether the CPU multiplies bfloat16 faster than float32: with AMX or AVX-512 BF16 instructions, unless
// HEADROOM_BFLOAT16=float says not to use them, or HEADROOM_BFLOAT16=pairs to multiply bfloat16 anyway.
inline bool multiplies_bfloat16() {
  static const bool kDoes = [] {
    const char* wish = std::getenv("HEADROOM_BFLOAT16");
    return wish != nullptr ? std::string_view(wish) == "pairs" : cpu_has("amx_bf16") || cpu_has("avx512_bf16");
  }();
  return kDoes;
}

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
