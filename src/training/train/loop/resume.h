// Continuing a run from its last checkpoint.
#pragma once

#include <optional>

#include "headroom/store/checkpoint.h"
#include "train.h"

namespace headroom::train {

struct ResumePoint {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
};

// The checkpoint to continue from, if there is one. The leading rank, which must hold the folder's lock, removes files
// that a killed process left incomplete. A run that torchrun has restarted is resumed without request.resume. Throws
// UserError if the folder holds a run that is not to be resumed, only unreadable checkpoints, or a comparison.
std::optional<ResumePoint> open_run(const TrainRequest& request, const parallel::GlooGroup& group);

// Throws UserError naming the first changed key that must not change: all of `model`, and the keys on which the saved
// state depends (batch_size, batching, seed, optimizer). Logs other changes (more steps, another learning rate).
void check_resumable(const ResumePoint& resumed, const config::Config& config);

}  // namespace headroom::train
