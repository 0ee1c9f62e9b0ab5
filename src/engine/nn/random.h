// Random numbers of a training step as a hash of the step's seed, the use (scope and name), the row of the batch and
// the place in the row. They are the same on every device, in every floating type, for any number of threads and for
// any split of the batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "headroom/nn/context.h"

namespace headroom::nn {

// The seed of one use. Throws Error naming it if the context has no random numbers.
std::uint64_t use_seed(const Context& context, std::string_view use);

// `x` with its leading axes folded or unfolded to the batch's rows: [rows, ...]. Throws Error if the rows do not divide
// its elements.
at::Tensor by_row(const at::Tensor& x, const Randomness& random);

// Uniform in [0, 1), multiples of 2^-24, shaped like `like`, whose leading axes are the batch's rows.
at::Tensor uniform(const at::Tensor& like, const Context& context, std::string_view use);
// Standard normal, in multiples of 2^-16, which hides the last bits, in which devices differ.
at::Tensor normal(const at::Tensor& like, const Context& context, std::string_view use);

}  // namespace headroom::nn
