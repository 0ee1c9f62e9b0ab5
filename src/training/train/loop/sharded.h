// Runs of a model whose parameters and optimizer state other code shards over the ranks (headroom_torch.train): that
// code computes steps and losses and writes distributed checkpoints; everything else of a run is the same.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "training/parallel/gloo_group.h"
#include "training/train/step/step.h"

namespace headroom::train {

struct ShardedReply {
  Json values;
  std::vector<at::Tensor> tensors;
};
// Calls a function of that code. All ranks make the same calls in the same order:
//   newest {folder}                           -> {step, metadata} of the newest distributed checkpoint
//   open {config, folder, step}, initial parameters
//                                             -> nothing. step: of the checkpoint to load; 0: none. The parameters of
//                                                train.start_from are whole, in creation order; otherwise there are
//                                                none
//   step {step, learning_rate, stop, micro_batches}, batch
//                                             -> [cross-entropy, regulariser, gradient norm, stop] over all ranks
//   losses {}, inputs and targets             -> cross-entropy of each target that is not negative
//   save {step, metadata, keep, wait}         -> nothing
//   shards {}                                 -> [[name, first element], ...], this rank's shards
using ShardedCall =
    std::function<ShardedReply(const char* function, const Json& values, const std::vector<at::Tensor>& tensors)>;

// Throws UserError naming the first key that sharded runs do not support.
void require_shardable(const config::Config& config);

// The subfolder of a run with its distributed checkpoints.
inline constexpr const char* kShardedFolder = "sharded";

// Returns the newest distributed checkpoint without its tensors.
store::Checkpoint newest_sharded(const ShardedCall& call, const std::filesystem::path& out);

// Returns a model on the meta device whose losses are computed by `call`.
std::unique_ptr<models::Model> make_sharded_model(const config::Config& config, const ShardedCall& call);

// Creates or loads the parameters.
void open_sharded(const ShardedCall& call, const config::Config& config, const std::filesystem::path& out,
                  std::int64_t step, const store::Checkpoint* initial);

// As train_step(); the rank computes the micro-batches that it has in train_step().
StepOutcome sharded_step(const ShardedCall& call, const models::Batch& batch, TrainState& state,
                         const config::TrainOptions& options, const parallel::GlooGroup& group, bool stop);

// Adds this rank's shards to a checkpoint of meta tensors.
void add_shards(const ShardedCall& call, store::Checkpoint& checkpoint);

}  // namespace headroom::train
