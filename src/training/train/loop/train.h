// Trains a model from a config and writes a run folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/tokenizers/tokenizer.h"
#include "history.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/figures.h"
#include "training/tasks/task.h"

namespace headroom::train {

// The loss or a gradient stopped being finite.
class DivergedError : public Error {
 public:
  using Error::Error;
};

struct TrainResult {
  std::int64_t steps = 0;
  double train_loss = NAN;         // mean over the last logged interval; NaN if nothing has been logged
  double tokens_per_second = 0.0;  // excluding evaluation and checkpoints
  double seconds = 0.0;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t parameters = 0;
  std::string parameters_sha256;  // parameters_sha256() in state.h
  bool interrupted = false;       // Ctrl-C: a checkpoint was written
  std::vector<ValidationPoint> validation;
  std::optional<std::int64_t> best_step;  // with train.keep_best: that of the best validation

  // Returns the figures of the best validation with train.keep_best, else of the last one; empty if there is none.
  tasks::Figures figures() const { return validation.empty() ? tasks::Figures() : chosen()->figures; }
  // Returns the validation with these figures; there must be one.
  std::vector<ValidationPoint>::const_iterator chosen() const {
    const auto best = std::ranges::find(validation, best_step, &ValidationPoint::step);
    return best == validation.end() ? validation.end() - 1 : best;
  }
};

// What a run reads, each as the description that identifies its content; empty without a tokenizer.
struct RunData {
  std::string training, validation, tokenizer;
};
RunData run_data(const tasks::TaskData& data);

struct TrainRequest {
  config::Config config;
  std::filesystem::path out;    // run folder
  bool resume = false;          // continue from the newest checkpoint in `out`, if there is one
  std::filesystem::path cache;  // prepared data
  std::string title = "train";  // in front of the progress bar
  // config::Config::recorded_losses, if the run's losses are to be compared with them.
  std::vector<double> recorded_losses = {};
  // The ranks that train together, all with the same request. With fixed train.accumulate,
  // train.gradient_accumulators and train.threads, the trained parameters do not depend on the number of ranks.
  parallel::GlooGroup* group = &parallel::default_group();
  // Called before the first step and at the end of training, while this process holds the folder's lock.
  std::function<void(const RunData&)> opened = {};
  std::function<void(const TrainResult&)> finished = {};
};

// Trains and writes the run folder (interface: config.toml, metrics.jsonl, events.out.tfevents.*, checkpoints/).
// Throws UserError for unusable data or options and, without `resume`, for a folder that already holds a run; throws
// DivergedError if the loss is not finite, with a message that names the step, the last good checkpoint and what to
// try.
TrainResult train(const TrainRequest& request);

// Throws UserError if train.device does not exist, or if a step needs more memory than the system allows.
void check_machine(const config::Config& config);

// If the config leaves the vocabulary size to the tokenizer, returns the config with the tokenizer's size, after
// checking it on this machine again. Otherwise returns the config unchanged. `tokenizer`: null if the task reads no
// text.
config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer);

}  // namespace headroom::train
