// One optimizer step: loss and gradients over the micro-batches, clipping, the optimizer. For the trainer, and for
// benchmarks and trials of a single step.
#pragma once

#include "headroom/config/run_options.h"
#include "headroom/models/model.h"
#include "state.h"
#include "training/train/ranks/exchange.h"

namespace headroom::train {

struct StepOutcome {
  double loss = 0.0;           // cross-entropy, mean over the batch's targets, in nats
  double regulariser = 0.0;    // 0 where the model has none
  double gradient_norm = 0.0;  // of the mean gradient, before clipping
  double learning_rate = 0.0;
  bool stop = false;  // this process, or another one that shares the step, was asked to stop
  bool finite() const;
};

// Trains on `batch`, whose rows `options.accumulate` divides; updates parameters, state.moments, state.memory
// and state.step. When loss or gradient is not finite, parameters and moments stay as they were. `context` says
// precision and implementation.
StepOutcome train_step(models::Model& model, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context);

// The same of a step that several processes share: `exchange` says what this one computes, and brings it together.
StepOutcome train_step(models::Model& model, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context, Exchange& exchange);

}  // namespace headroom::train
