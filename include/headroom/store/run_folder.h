// The checkpoints of a run folder: how they are named, which one counts, how many are kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "headroom/store/checkpoint.h"

namespace headroom::store {

// `step_<n>.safetensors` in `folder`, written aside and renamed, then `latest`, then old ones beyond `keep` removed
// (never the new one). Returns its path. Throws what save_checkpoint() throws. Of several processes all call it, and
// the leading one looks after names and old files.
std::filesystem::path write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       std::int64_t keep, ProcessGroup& peers = alone());

// A checkpoint file, or of a run folder (or the folder of its checkpoints) the checkpoint that `latest` names; where
// that one is missing or does not describe a model, the newest that does (with a warning); a single one
// whatever it is like. Throws UserError.
std::filesystem::path find_checkpoint(const std::filesystem::path& run_or_checkpoint);

// The newest checkpoint of a run folder, or of the folder of its checkpoints, with the mean of the parameters of its
// newest `count` checkpoints; without what only training needs. Throws UserError where there are fewer.
Checkpoint average_checkpoints(const std::filesystem::path& run, std::int64_t count);

// All checkpoints of a run folder, or of the folder of its checkpoints, oldest first. Throws UserError where there
// are none.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// Whether a run folder holds any checkpoint file, readable or not.
bool has_checkpoints(const std::filesystem::path& run);

}  // namespace headroom::store
