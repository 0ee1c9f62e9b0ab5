// The training loop: from a config to a run folder.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "history.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/figures.h"

namespace headroom::train {

// The loss or a gradient stopped being finite.
class DivergedError : public Error {
 public:
  using Error::Error;
};

struct TrainResult {
  std::int64_t steps = 0;
  double train_loss = NAN;         // mean over the last logged interval; NaN: none was logged yet
  double tokens_per_second = 0.0;  // of training alone
  double seconds = 0.0;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t parameters = 0;
  std::string parameters_sha256;  // over names and bytes, in order
  bool interrupted = false;       // Ctrl-C: a checkpoint was written
  std::vector<ValidationPoint> validation;

  // Of the last validation; empty before any.
  tasks::Figures figures() const { return validation.empty() ? tasks::Figures() : validation.back().figures; }
};

struct TrainRequest {
  config::Config config;
  std::filesystem::path out;    // run folder
  bool resume = false;          // continue from out's newest checkpoint if there is one
  std::filesystem::path cache;  // prepared data
  std::string title = "train";  // in front of the progress bar
  // Those that train together, all with the same request; null: this process alone. The parameters that training ends
  // with do not depend on how many they are (train.accumulate sums of gradients a step, and train.threads each).
  parallel::GlooGroup* world = nullptr;
  // Called when the folder has become this process's, and while it still is.
  std::function<void()> begins = {};
  std::function<void(const TrainResult&)> finished = {};
};

// Trains and writes the run folder (interface: config.toml, metrics.jsonl, events.out.tfevents.*, checkpoints/).
// Without `resume`, a folder that already holds a run is refused. Throws UserError for unusable data or options,
// DivergedError when the loss stops being finite: the message names the step, the last good checkpoint and what to try.
TrainResult train(const TrainRequest& request);

// The learning rate of `step` (0-based) under the options' schedule, f = final_learning_rate, w = warmup_steps:
//   every schedule but one_cycle rises linearly, (step + 1) / w of the whole, while step < w; from there
//   constant      stays
//   cosine        1 -> f along half a cosine, f reached at step = steps
//   linear        1 -> f along a line, f reached at step = steps
//   inverse_sqrt  sqrt(w / (step + 1)), w at least 1, never below f
//   one_cycle     a line from 1/25 to 1 at step w - 1 (w = 0: 30% of the steps), a line to f at the last step
double learning_rate(const config::TrainOptions& options, std::int64_t step);

}  // namespace headroom::train
