// Where a run computes and in which number format: the one place that decides.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/context.h"

namespace headroom::models {

// What torch can compute on here: the CPU, then the GPUs.
std::vector<at::Device> devices();

// The device that train.device or --device names: "auto" is the first GPU where there is one, else the CPU. Throws
// UserError where torch has no such device.
at::Device resolve(const std::string& device);

// `automatic` becomes bf16 where it multiplies faster than fp32 (on a GPU, or a CPU with AMX or AVX-512 BF16
// instructions), else fp32; the others stay. Runs write the answer into their config, so that a resumed run computes
// alike elsewhere.
config::Precision resolve(config::Precision precision, at::Device device);

// The context of every forward pass of a run, whether it trains, evaluates or writes: the implementation, and the type
// of the products, bf16 or the parameters' own fp32. Parameters, optimizer state, norms, softmax and losses are fp32 in
// both.
nn::Context make_context(const config::TrainOptions& options, at::Device device);

// Waits until the device has done what it was given.
void synchronize(at::Device device);

// The threads that train.threads or --threads names, 0: one for each of own_cores(), for all that is computed from now
// on.
void set_threads(std::int64_t threads);

}  // namespace headroom::models
