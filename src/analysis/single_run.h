// A training run by itself, as `train` leaves it.
#pragma once

#include <filesystem>

#include "headroom/analysis/compare.h"

namespace headroom::analysis {

// From its config and metrics. Throws MisuseError for a folder without them.
CompareResult single_run(const std::filesystem::path& folder);

}  // namespace headroom::analysis
