// Updates parameters from their gradients.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::train {

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
