// Continues a run from its last checkpoint.
#pragma once

#include <optional>

#include "headroom/store/checkpoint.h"
#include "train.h"

namespace headroom::train {

struct ResumePoint {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
};

// Returns the checkpoint to continue from, or nullopt if there is none. The leading rank, which must hold the folder's
// lock, removes files that a killed process left incomplete. A run restarted by torchrun is resumed even without
// request.resume. Throws UserError if the folder holds a run but request.resume is not set, only unreadable
// checkpoints, or a comparison.
std::optional<ResumePoint> open_run(const TrainRequest& request, const parallel::GlooGroup& group);

// Throws UserError naming the first key that differs but must not: any key of `model`, or a key on which the saved
// state depends (batch_size, batching, seed, optimizer). Logs other changes (more steps, another learning rate).
void check_resumable(const ResumePoint& resumed, const config::Config& config);

}  // namespace headroom::train
