// Measures how long a step takes before a run, and computes the number of steps that fit a given time.
#pragma once

#include <cstdint>
#include <filesystem>

#include "headroom/config/config.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"

namespace headroom::train {

struct StepTime {
  double step_seconds = 0.0;   // of one step, warmed up
  double start_seconds = 0.0;  // before the first step
};

// Trains a model of the config for about `seconds` and discards it. train.precision must be resolved. Advances
// data.training; the caller must restore its position. All ranks measure together and get the leading rank's times.
// Throws InterruptedError on Ctrl-C; `what` is the start of messages.
StepTime measure_step_time(const config::Config& config, tasks::TaskData& data, double seconds, const char* what,
                           parallel::GlooGroup& group = parallel::default_group());

// Opens the config's data, which may take long the first time, and measures on one rank. The time until the first step
// includes the opening.
StepTime measure_step_time(const config::Config& config, const std::filesystem::path& cache, double seconds,
                           const char* what);

// Sets train.steps. The warm-up keeps its fraction of the steps; if there is none, its fraction becomes `warmup_share`.
void set_steps(config::TrainOptions& train, std::int64_t steps, double warmup_share = 0.0);

// Sets train.steps so that training takes train.seconds, including this measurement. Throws UserError if the time is
// too short for one step.
void choose_steps(config::Config& config, tasks::TaskData& data, parallel::GlooGroup& group);

}  // namespace headroom::train
