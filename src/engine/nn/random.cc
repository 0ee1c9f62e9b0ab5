#include "random.h"

#include <cmath>

#include "engine/ops/dropout/random_bits.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"

namespace headroom::nn {
namespace {

// Returns 32 random bits for each element of `like`.
at::Tensor bits(const at::Tensor& like, const Context& context, std::string_view use) {
  const std::uint64_t seed = use_seed(context, use);
  const Randomness& random = *context.random;
  return ops::random_bits({.seed = seed,
                           .first_row = random.first_row,
                           .rows = random.rows,
                           .per_row = by_row(like, random).numel() / random.rows},
                          like.device())
      .view(like.sizes());
}

}  // namespace

std::uint64_t use_seed(const Context& context, std::string_view use) {
  if (!context.random) {
    fail("{}{}: training needs random numbers; set Context::random", context.scope, use);
  }
  return mix(mix(context.random->seed, context.scope), use);
}

at::Tensor by_row(const at::Tensor& x, const Randomness& random) {
  if (random.rows < 1 || x.numel() % random.rows != 0) {
    fail("random numbers: {} elements cannot be split into {} rows", x.numel(), random.rows);
  }
  return x.dim() > 0 && x.size(0) == random.rows ? x : x.reshape({random.rows, -1});
}

at::Tensor uniform(const at::Tensor& like, const Context& context, std::string_view use) {
  if (context.from_generator) {
    return at::rand_like(like);
  }
  return bits(like, context, use).bitwise_right_shift(8).to(like.scalar_type()).mul_(0x1p-24);
}

at::Tensor normal(const at::Tensor& like, const Context& context, std::string_view use) {
  if (context.from_generator) {
    return at::randn_like(like);
  }
  // sqrt 2 erfinv(u) for u in (-1, 1), an odd multiple of 2^-32.
  const at::Tensor u = bits(like, context, use).to(at::kDouble).mul_(2.0).sub_(0x1p32 - 1.0).mul_(0x1p-32);
  return at::erfinv(u).mul_(std::sqrt(2.0) * 0x1p16).round_().mul_(0x1p-16).to(like.scalar_type());
}

}  // namespace headroom::nn
