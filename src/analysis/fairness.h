// In what a run folder and a request differ.
#pragma once

#include <string>

#include "headroom/config/config.h"

namespace headroom::analysis {

// What must change for a run folder's config to be the one asked for: "train.steps is 1000 there, 200 here"; empty
// when nothing. Keys that a run fills in by itself (precision "auto", threads 0) and those that only say how often
// to write agree with anything.
std::string first_difference(const config::Config& there, const config::Config& here);

}  // namespace headroom::analysis
