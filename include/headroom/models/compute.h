// Device, precision and threads of a run.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/context.h"

namespace headroom::models {

// Returns the devices that torch can use: the CPU, then the GPUs.
std::vector<at::Device> devices();

// Returns the device for train.device or --device; "auto" is the first GPU, or the CPU if there is none. Throws
// UserError if torch cannot use the device.
at::Device resolve(const std::string& device);

// Resolves `automatic` to bf16 if the device multiplies faster in it (GPUs, CPUs with AMX or AVX-512 BF16), otherwise
// to fp32. Runs write the result into their config, so that they resume in the same precision elsewhere.
config::Precision resolve(config::Precision precision, at::Device device);

// Returns the context of all forward passes of a run: implementation and compute type (bf16, or fp32 like the
// parameters). Parameters, optimizer state, norms, softmax and losses are always fp32.
nn::Context make_context(const config::TrainOptions& options, at::Device device);

// Waits for all work queued on the device.
void synchronize(at::Device device);

// Returns the peak memory in bytes since the last reset: of this process on the CPU, of torch's allocator on a GPU.
std::int64_t peak_memory_bytes(at::Device device);
void reset_peak_memory(at::Device device);

// Sets the number of threads of this process; 0: one per core in own_cores().
void set_threads(std::int64_t threads);

}  // namespace headroom::models
