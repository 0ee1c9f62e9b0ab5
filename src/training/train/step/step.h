// Runs one optimizer step: losses and gradients over the micro-batches, clipping, and the update. Used by the trainer,
// by benchmarks and by single-step trials.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/model.h"
#include "headroom/nn/parameters.h"
#include "state.h"
#include "teacher.h"
#include "training/train/ranks/gradient_reducer.h"

namespace headroom::train {

struct StepOutcome {
  double loss = 0.0;           // cross-entropy, mean over the batch's targets, in nats
  double regulariser = 0.0;    // 0 if the model has none
  double gradient_norm = 0.0;  // of the mean gradient, before clipping
  double learning_rate = 0.0;
  bool stop = false;  // some rank was asked to stop
  bool finite() const;
};

// The model to train, and its teacher.
struct StepModels {
  StepModels(models::Model& of, Teacher* from = nullptr) : model(of), teacher(from) {}  // NOLINT: implicit
  models::Model& model;
  Teacher* teacher;  // null: none
};

// Trains on `batch`, whose number of rows is a multiple of options.accumulate. Updates the parameters, state.moments,
// state.memory and state.step; leaves all of them unchanged if the loss or the gradient is not finite. `context` sets
// the precision and the implementation.
StepOutcome train_step(StepModels models, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context);

// For several ranks: `reducer` decides which micro-batches this rank computes.
StepOutcome train_step(StepModels models, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context, GradientReducer& reducer);

// Learning-rate schedules, and the update of parameters from their gradients (optimizer.cc).

// Returns the learning rate at `step` (from 0). The list gives each schedule, with f = final_learning_rate and w =
// warmup_steps, as a multiple of options.learning_rate. Every schedule except one_cycle rises linearly, (step + 1) / w,
// while step < w; then it
//   constant      stays at 1
//   cosine        falls from 1 to f along half a cosine, f reached at step = steps
//   linear        falls from 1 to f linearly, f reached at step = steps
//   inverse_sqrt  is sqrt(w / (step + 1)) with w at least 1, never below f
// one_cycle rises linearly from 1/25 to 1 at step w - 1 (w = 0: after 30% of the steps), then falls linearly to f at
// the last step.
double learning_rate(const config::TrainOptions& options, std::int64_t step);

struct Update {
  std::int64_t step = 1;              // from 1
  double learning_rate = 0.0;         // with the schedule applied
  double gradient_scale = 1.0;        // a factor applied to the gradients first (clipping)
  std::vector<at::Tensor> gradients;  // one per parameter; may be overwritten
};

// Updates parameters and moments with options.optimizer. `context` sets the precision of matrix multiplications.
void optimizer_step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
                    const config::TrainOptions& options, const nn::Context& context);

}  // namespace headroom::train
