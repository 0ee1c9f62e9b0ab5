// Trains a model from a config and writes a run folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/tokenizers/tokenizer.h"
#include "sharded.h"
#include "training/parallel/gloo_group.h"
#include "training/train/record/run_folder.h"

namespace headroom::train {

// Thrown if the loss or a gradient is not finite.
class DivergedError : public Error {
 public:
  using Error::Error;
};

struct TrainRequest {
  config::Config config;
  std::filesystem::path out;    // run folder
  bool resume = false;          // continue from the newest checkpoint in `out`, if there is one
  std::filesystem::path cache;  // folder for prepared data
  std::string title = "train";  // prefix of the progress bar
  // config::Config::recorded_losses, if the run's losses are to be compared with the recorded ones.
  std::vector<double> recorded_losses = {};
  // The ranks that train together, all with the same request. With fixed train.accumulate,
  // train.gradient_accumulators and train.threads, the trained parameters do not depend on the number of ranks.
  parallel::GlooGroup* group = &parallel::default_group();
  std::string command = {};  // the command line, if it concerns only this run
  ShardedCall sharded = {};  // if set, that code trains the model
};

// Trains and writes the run folder (interface: config.toml, metrics.jsonl, events.out.tfevents.*, checkpoints/; also
// run_folder.h). Throws UserError for unusable data or options and, without `resume`, for a folder that already holds a
// run; throws DivergedError if the loss is not finite, with a message that names the step, the last good checkpoint and
// what to try.
TrainResult train(const TrainRequest& request);

// Throws UserError if train.device does not exist, or if a step needs more memory than the system allows.
void check_machine(const config::Config& config);

// If the config leaves the vocabulary size to the tokenizer, returns the config with the tokenizer's size, after
// checking it (unless `sharded`, also on this machine). Otherwise returns the config unchanged. `tokenizer`: null if
// the task reads no text.
config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer, bool sharded = false);

}  // namespace headroom::train
