// A command that several processes carry out: they meet, one speaks, and they end together.
#pragma once

#include <functional>

#include "cli/commands.h"

namespace headroom::cli {

// Joins the others where torchrun started this process, and runs. An error of one is said once, naming the process
// where it is one's own, and ends all; one that would come again is not tried again. Throws what `run` throws in a
// process by itself, EndedError in others, and Error for torch's.
int together(const EngineRequest& request, const std::function<int()>& run);

}  // namespace headroom::cli
