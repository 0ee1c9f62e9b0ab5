// Going on with a run: may it be, and what has changed.
#pragma once

#include <optional>

#include "headroom/store/checkpoint.h"
#include "train.h"

namespace headroom::train {

struct Past {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
};

// The checkpoint to continue from, if any; the process that leads clears away what a killed one left
// half-written, and holds the folder's lock. A run that torchrun started again is resumed. Throws UserError when the
// folder holds a run although nobody asked to resume it, only unreadable checkpoints, or a comparison.
std::optional<Past> open_run(const TrainRequest& request, const parallel::GlooGroup& world);

// Throws UserError naming the first key that differs and without which the run would not be the same one: all of
// `model`, and what gives the saved state its meaning (batch_size, batching, seed, optimizer). Other changes (more
// steps, another learning rate) are logged.
void check_resumable(const Past& past, const config::Config& config);

}  // namespace headroom::train
