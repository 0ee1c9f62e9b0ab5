// How long a step of a config takes on this machine.
#pragma once

#include <filesystem>

#include "advise.h"
#include "headroom/config/config.h"

namespace headroom::compare {

// Trains for about so many seconds, three steps at least after two that warm up, and keeps nothing. Throws UserError
// for unusable data or too little memory, InterruptedError on Ctrl-C.
Measured measure_steps(const config::Config& config, const std::filesystem::path& cache, double seconds);

}  // namespace headroom::compare
