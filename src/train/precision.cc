#include "headroom/train/precision.h"

#include "headroom/core/system.h"

namespace headroom::train {

config::Precision resolve(config::Precision precision) {
  if (precision != config::Precision::automatic) {
    return precision;
  }
  const bool gains = cpu_has("amx_bf16") || cpu_has("avx512_bf16");
  return gains ? config::Precision::bf16 : config::Precision::fp32;
}

std::optional<at::ScalarType> compute_dtype(config::Precision precision) {
  if (resolve(precision) == config::Precision::bf16) {
    return at::kBFloat16;
  }
  return std::nullopt;
}

}  // namespace headroom::train
