#include "headroom/nn/context.h"
#include "headroom/ops/dropout.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "random.h"

namespace headroom::nn {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty() || pattern.front() != '*') {
    return pattern.empty()
               ? name.empty()
               : !name.empty() && name.front() == pattern.front() && matches(pattern.substr(1), name.substr(1));
  }
  const std::string_view rest = pattern.substr(1), step = name.substr(0, name.find('.'));
  for (std::size_t n = 0; n <= step.size(); ++n) {
    if (matches(rest, name.substr(n))) {
      return true;
    }
  }
  return false;
}

bool Recorder::wants(std::string_view name) const {
  return std::ranges::any_of(patterns_, [&](const auto& pattern) { return matches(pattern, name); });
}

at::Tensor Recorder::observe(std::string_view name, at::Tensor value) {
  values[std::string(name)] = value;
  return value;
}

const at::Tensor& Recorder::at(std::string_view name) const {
  const auto found = values.find(name);
  if (found == values.end()) {
    fail("observer: {} was not recorded", name);
  }
  return found->second;
}

bool Context::wants(std::string_view name) const {
  return observer != nullptr && observer->wants(scope + std::string(name));
}

at::Tensor Context::observe(std::string_view name, at::Tensor value) const {
  if (!wants(name)) {
    return value;
  }
  const std::string full = scope + std::string(name);
  at::Tensor replacement = observer->observe(full, value);
  if (!replacement.defined() || replacement.sym_sizes() != value.sym_sizes() ||
      replacement.scalar_type() != value.scalar_type() || replacement.device() != value.device()) {
    fail("observer: {}: the replacement must have the same shape, type and device", full);
  }
  return replacement;
}

void report(BufferUpdates& updates, const std::string& name, const BufferUpdate& update) {
  const auto [place, is_first] = updates.emplace(name, update);
  if (!is_first) {
    place->second.sum = place->second.sum + update.sum;
    place->second.count = place->second.count + update.count;
  }
}

void apply(const BufferUpdates& updates) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, update] : updates) {
    const at::Tensor mean = update.sum / (update.count + update.epsilon);
    update.buffer.copy_(at::where(update.count.gt(0.0), mean, update.buffer));
  }
}

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
