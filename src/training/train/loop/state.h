// Everything that changes during a run, apart from the parameters, with which it makes up a whole
// checkpoint. The random state needs no place here: random numbers follow from (train.seed, step, place).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokens/batches.h"
#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "training/train/optimizers/optimizer.h"
#include "training/train/ranks/shares.h"

namespace headroom::train {

// What happened since the last line of the metrics.
struct Interval {
  std::int64_t steps = 0, tokens = 0;
  double seconds = 0.0;
  double loss = 0.0, regulariser = 0.0;  // sums over the steps
};

struct TrainState {
  std::int64_t step = 0;           // optimizer steps done
  data::DataPosition position;     // of the next batch
  Moments moments;                 // the optimizer's
  models::Memory memory;           // of the rows that this process computes, in their order
  std::int64_t tokens = 0;         // trained on so far
  double seconds = 0.0;            // of training alone, over all processes that worked on the run
  std::int64_t steady_tokens = 0;  // the same without the first steps of each process, which warm the caches up
  double steady_seconds = 0.0;
  Interval interval;
};

// Moments are those of the share's pieces, in their order.
TrainState fresh_state(const nn::Parameters& parameters, config::Optimizer optimizer = config::Optimizer::adamw,
                       const Share& share = {});

// What a checkpoint has besides the state.
struct Surroundings {
  const models::Model& model;
  const config::Config& config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string data;  // the training data's identity: a run never continues with other data
  Share share = {};
};

// Parameters and moments of which the share owns no piece, or not all, are shapes without memory (of the meta device):
// it writes its pieces of them, and other processes the rest. Buffers are written by the leading process alone.
store::Checkpoint to_checkpoint(const TrainState& state, const Surroundings& around);
std::string memory_name(std::size_t layer);  // of the tensor that a checkpoint keeps it in

// Throws UserError naming `origin` when the checkpoint lacks something or its shapes do not fit.
TrainState from_checkpoint(const store::Checkpoint& checkpoint, const models::Model& model, const std::string& origin,
                           const Share& share = {});

// Throws UserError when the checkpoint's run was trained on other data than that of this identity.
void check_data(const store::Checkpoint& checkpoint, const std::string& identity, const std::string& origin);

// SHA-256 over names and bytes of the parameters, in order.
std::string parameters_sha256(const nn::Parameters& parameters);

}  // namespace headroom::train
