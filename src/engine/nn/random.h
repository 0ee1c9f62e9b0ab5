// Random numbers of a training step by their place: a hash of the step's seed, the use (its scope and a name of its
// own), the row of the batch and the place in that row. The same on every device, in every floating type, for any
// number of threads, and for any split of a batch into parts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "headroom/nn/context.h"

namespace headroom::nn {

// The seed of one use. Throws Error naming it where the context has no random numbers.
std::uint64_t use_seed(const Context& context, std::string_view use);

// `x` with the batch's rows as its first axis, however many axes they were folded into: [rows, ...]. Throws Error where
// the rows do not divide it.
at::Tensor by_row(const at::Tensor& x, const Randomness& random);

// Uniform in [0, 1), multiples of 2^-24, shaped like `like`, whose leading axes begin with the batch's rows.
at::Tensor uniform(const at::Tensor& like, const Context& context, std::string_view use);
// Standard normal, in multiples of 2^-16: the last bits, in which devices' functions differ, do not show.
at::Tensor normal(const at::Tensor& like, const Context& context, std::string_view use);

}  // namespace headroom::nn
