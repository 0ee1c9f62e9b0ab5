// Whether this machine can train a config, and the speed of its matrix multiplications.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "headroom/config/config.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

// Throws UserError if train.device does not exist, or if a step needs more memory than the system allows.
void check_machine(const config::Config& config);

// If the config leaves its vocabulary size to the tokenizer: the config with the tokenizer's, checked again on this
// machine. Otherwise the config unchanged. `tokenizer`: null if the task reads no text.
config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer);

// The highest rate of matrix multiplications of this precision on the device with the threads in force, in GFLOP/s (two
// operations for each multiply-accumulate): the better of torch's product of large matrices and, in fp32 on a CPU, of
// tiles that stay in the caches. Measured by the first call, in some 0.2 s, then cached.
double product_rate(config::Precision precision, at::Device device);

// The rates of torch's product of two n x n matrices, and of tiles (float32, on the CPU). Measured by each call.
double large_product_rate(std::int64_t n, config::Precision precision, at::Device device);
double tile_product_rate();

namespace detail {

// The size n of n x n matrices whose product uses the whole device: 128, doubled until `seconds(n)` is long enough to
// measure or n is `largest`. Some processors are a thousand times slower in bf16, so no larger size is tried than the
// first that takes long enough.
std::int64_t large_enough(std::int64_t largest, const std::function<double(std::int64_t)>& seconds);

}  // namespace detail
}  // namespace headroom::train
