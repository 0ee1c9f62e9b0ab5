// How long a step of a config takes on this machine.
#pragma once

#include <filesystem>

#include "headroom/config/config.h"

namespace headroom::compare {

struct Measured {
  double step_seconds = 0.0;   // of training: a quarter of some steps were faster (other programs only slow down)
  double start_seconds = 0.0;  // until the first step: opening the data, making the model
};

// Trains for about so many seconds, three steps at least after two that warm up, and keeps nothing. Throws MisuseError
// for unusable data or too little memory, InterruptedError on Ctrl-C.
Measured measure_steps(const config::Config& config, const std::filesystem::path& cache, double seconds);

}  // namespace headroom::compare
