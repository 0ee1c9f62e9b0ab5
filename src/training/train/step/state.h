// The state of a run; together with the parameters it forms a complete checkpoint. Random numbers need no state,
// because they are functions of (train.seed, step, position).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokens/batches.h"
#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "training/train/ranks/gradient_reducer.h"

namespace headroom::train {

// Optimizer state: one tensor per parameter or shard, in order and of the same shape. m is the running mean of the
// gradient; v is the running mean of its square, undefined if config::has_second_moment() is false.
struct Moments {
  std::vector<at::Tensor> m, v;
};

// Totals since the last logged step.
struct LogInterval {
  std::int64_t steps = 0, tokens = 0;
  double seconds = 0.0;
  double loss = 0.0, regulariser = 0.0;  // sums over the steps
};

struct TrainState {
  std::int64_t step = 0;           // optimizer steps done
  data::DataPosition position;     // of the next batch
  Moments moments;                 // of the shards that this rank owns
  models::Memory memory;           // of the rows that this rank computes, in order
  std::int64_t tokens = 0;         // training tokens so far
  double seconds = 0.0;            // training time, over all processes that have worked on the run
  double cpu_seconds = 0.0;        // of all threads of this rank during that time
  std::int64_t steady_tokens = 0;  // excluding the first steps of each process, which warm up caches
  double steady_seconds = 0.0;
  LogInterval interval;
};

// Returns the state before the first step, with the moments of the shards that this rank of the group owns.
TrainState initial_state(const nn::Parameters& parameters, config::Optimizer optimizer = config::Optimizer::adamw,
                         const ProcessGroup& group = alone());

// The contents of a checkpoint other than the state.
struct CheckpointParts {
  const models::Model& model;
  const config::Config& config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string data;  // identity of the training data, which must not change when resuming
  const ProcessGroup& group = alone();
  std::string special_tokens = {};  // store::kSpecialTokens; empty: none
};

// Parameters and moments that this rank does not own entirely are meta tensors, because each rank writes its own
// shards. Only the leading rank has the buffers.
store::Checkpoint to_checkpoint(const TrainState& state, const CheckpointParts& parts);

// Throws UserError naming `origin` if something is missing or has a wrong shape.
TrainState from_checkpoint(const store::Checkpoint& checkpoint, const models::Model& model, const std::string& origin,
                           const ProcessGroup& group = alone());

// Throws UserError if the checkpoint's training data has a different identity.
void check_data(const store::Checkpoint& checkpoint, const std::string& identity, const std::string& origin);

// Returns the SHA-256 of the names and bytes of the parameters, in order.
std::string parameters_sha256(const nn::Parameters& parameters);

}  // namespace headroom::train
