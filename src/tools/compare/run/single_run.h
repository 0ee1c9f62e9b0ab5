// A training run by itself, as `train` leaves it.
#pragma once

#include <filesystem>

#include "tools/compare/compare.h"

namespace headroom::compare {

// From its config and metrics. Throws UserError for a folder without them.
CompareResult single_run(const std::filesystem::path& folder);

}  // namespace headroom::compare
