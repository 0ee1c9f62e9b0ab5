// How fast matrix products can be here: what a step's own rate is compared with.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "headroom/config/run_options.h"

namespace headroom::train {

// 10^9 floating-point operations (two for each multiply-accumulate) a second that the device reaches at most in
// products of this precision, with the threads in force: the best of torch's product of large matrices and, in fp32 on
// a CPU, of many tiles that stay in the caches. Measured on the first call, in some 0.2 s, and remembered by the
// process. `automatic` counts as it is resolved on the device.
double product_rate(config::Precision precision, at::Device device);

// Of the torch product of two n x n matrices, and of tiles (float32, on the CPU) alone; measured at each call.
double large_product_rate(std::int64_t n, config::Precision precision, at::Device device);
double tile_product_rate();

namespace detail {

// The size n of n x n matrices whose product fills a device: 128 doubled until `seconds(n)` of one product are enough
// to be timed, at most `largest`. Some processors multiply bf16 a thousand times as slowly as others: nothing larger
// than the first size that takes long may be multiplied.
std::int64_t large_enough(std::int64_t largest, const std::function<double(std::int64_t)>& seconds);

}  // namespace detail
}  // namespace headroom::train
