// Random numbers of a training step, computed as a hash of the step's seed, the use (scope and name), the row of the
// batch and the index in the row. They are identical on every device, in every floating type, for any number of threads
// and for any split of the batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "headroom/nn/context.h"

namespace headroom::nn {

// Returns the seed of one use. Throws Error naming it if the context has no random numbers.
std::uint64_t use_seed(const Context& context, std::string_view use);

// Returns `x` with its leading axes reshaped to the batch's rows: [rows, ...]. Throws Error if its number of elements
// is not a multiple of the rows.
at::Tensor by_row(const at::Tensor& x, const Randomness& random);

// Returns uniform values in [0, 1), multiples of 2^-24, in the shape of `like`, whose leading axes are the batch's
// rows.
at::Tensor uniform(const at::Tensor& like, const Context& context, std::string_view use);
// Returns standard normal values, rounded to multiples of 2^-16 because devices differ in the last bits.
at::Tensor normal(const at::Tensor& like, const Context& context, std::string_view use);

}  // namespace headroom::nn
