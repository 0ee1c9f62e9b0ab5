// Measures the matrix multiplication rate of this machine.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "headroom/config/run_options.h"

namespace headroom::train {

// Returns the peak matmul rate in this precision on the device, with the current number of threads, in GFLOP/s (two
// operations per multiply-accumulate): the higher of torch's rate for large matrices and, for fp32 on a CPU, the rate
// for tiles that stay in cache. The first call measures it, in about 0.2 s; later calls return the cached value.
double matmul_rate(config::Precision precision, at::Device device);

// Return the rate in GFLOP/s of torch's matmul of two n x n matrices, and of float32 tiles on the CPU. Every call
// measures.
double large_matmul_rate(std::int64_t n, config::Precision precision, at::Device device);
double tile_matmul_rate();

namespace detail {

// Returns the size n at which a matmul of n x n matrices uses the whole device: 128, doubled until `seconds(n)` is long
// enough to measure or n reaches `largest`. Stops at the first such size, because some processors are a thousand times
// slower in bf16.
std::int64_t large_enough(std::int64_t largest, const std::function<double(std::int64_t)>& seconds);

}  // namespace detail
}  // namespace headroom::train
