// Learning-rate schedules, and the update of parameters from their gradients.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::train {

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

// Optimizer state: one tensor per parameter or shard, in order and of the same shape. m is the running mean of the
// gradient; v is the running mean of its square, undefined if config::has_second_moment() is false.
struct Moments {
  std::vector<at::Tensor> m, v;
};

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
