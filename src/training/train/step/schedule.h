// The learning-rate schedules.
#pragma once

#include <cstdint>

#include "headroom/config/run_options.h"

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

}  // namespace headroom::train
