// Runs one optimizer step: losses and gradients over the micro-batches, clipping, and the update. Used by the trainer,
// by benchmarks and by single-step trials.
#pragma once

#include "headroom/config/run_options.h"
#include "headroom/models/model.h"
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

}  // namespace headroom::train
