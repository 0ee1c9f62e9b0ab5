// Measures the speed of this machine before a run: the rate of matrix multiplication and the time of a step, which
// determines how many steps fit a given time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>

#include "headroom/config/config.h"
#include "headroom/config/run_options.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"

namespace headroom::train {

// Returns the peak matmul rate in this precision on the device, with the current number of threads, in GFLOP/s (two
// operations per multiply-accumulate): the higher of torch's rate for large matrices and, for fp32 on a CPU, the rate
// for tiles that stay in cache. The first call measures it, in about 0.05 s; later calls return the cached value.
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

// Trains a model of the config for about `seconds`, discards it, and returns the median time of a step. train.precision
// must be resolved. Advances data.training; the caller must restore its position. All ranks measure together and get
// the leading rank's time. Throws InterruptedError on Ctrl-C; `what` is the start of messages.
double measure_step_time(const config::Config& config, tasks::TaskData& data, double seconds, const char* what,
                         parallel::GlooGroup& group = parallel::default_group());

// Opens the config's data, which may take long the first time, and measures on one rank.
double measure_step_time(const config::Config& config, const std::filesystem::path& cache, double seconds,
                         const char* what);

// Sets train.steps. The warm-up keeps its fraction of the steps.
void set_steps(config::TrainOptions& train, std::int64_t steps);

// Sets train.steps so that training takes train.seconds, including this measurement. Throws UserError if the time is
// too short for one step.
void choose_steps(config::Config& config, tasks::TaskData& data, parallel::GlooGroup& group);

}  // namespace headroom::train
