// One optimizer step: loss and gradients over the micro-batches, clipping, AdamW.
#pragma once

#include <ATen/ATen.h>

#include "headroom/config/run_options.h"
#include "headroom/models/language_model.h"
#include "state.h"

namespace headroom::train {

struct StepOutcome {
  double loss = 0.0;           // cross-entropy, mean over the batch, nats a token
  double regulariser = 0.0;    // 0 where the model has none
  double gradient_norm = 0.0;  // of the mean gradient, before clipping
  double learning_rate = 0.0;
  bool finite() const;
};

// Trains on `tokens` [batch, T+1]; moves parameters, state.m, state.v, state.memory and state.step on. When loss or
// gradient is not finite, parameters and moments stay as they were. `context` says precision and implementation.
StepOutcome train_step(models::LanguageModel& model, const at::Tensor& tokens, TrainState& state,
                       const config::TrainOptions& options, nn::Context context);

}  // namespace headroom::train
