#include "engine/ops/random_bits.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kWord = 0xFFFFFFFF;

// The kernels' hash in 64-bit tensor arithmetic, of which the low 32 bits are kept.
at::Tensor scramble(at::Tensor x) {
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  x = (x * 0x7FEB352D).bitwise_and(kWord);
  x = x.bitwise_xor(x.bitwise_right_shift(15));
  x = (x * 0x846CA68B).bitwise_and(kWord);
  return x.bitwise_xor(x.bitwise_right_shift(16));
}

}  // namespace

std::uint64_t row_seed(std::uint64_t seed, std::int64_t row) {
  return seed + static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15ULL;
}

at::Tensor random_bits(const Places& p, at::Device device) {
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
  const at::Tensor row = at::arange(p.first_row, p.first_row + p.rows, whole).unsqueeze(1);
  const at::Tensor seed =
      row * static_cast<std::int64_t>(row_seed(0, 1)) + static_cast<std::int64_t>(p.seed);  // wraps as row_seed() does
  const at::Tensor low = seed.bitwise_and(kWord), high = seed.bitwise_right_shift(32).bitwise_and(kWord);
  const at::Tensor place = at::arange(p.per_row, whole);
  return scramble(scramble((place + low).bitwise_and(kWord)).bitwise_xor(high));
}

}  // namespace headroom::ops
