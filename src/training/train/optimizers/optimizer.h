// How a step moves parameters along their gradients. Each optimizer is a file of its own, src/training/train/<name>.cc.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::train {

// What an optimizer remembers of the parameters, or of pieces of them, a tensor of the same shape for each in their
// order: m is a running mean of the gradient; v, of its square, is undefined where config::has_second_moment says no.
struct Moments {
  std::vector<at::Tensor> m, v;
};

struct Update {
  std::int64_t step = 1;              // counted from 1
  double learning_rate = 0.0;         // the schedule's, now
  double gradient_scale = 1.0;        // gradients are to be multiplied by it first (clipping)
  std::vector<at::Tensor> gradients;  // one for each parameter; they may be changed
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Moves the parameters and the moments. `context` says in which type products may run.
  virtual void step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
                    const config::TrainOptions& options, const nn::Context& context) const = 0;
};

const Optimizer& adamw();
const Optimizer& muon();
const Optimizer& optimizer_named(config::Optimizer name);

}  // namespace headroom::train
