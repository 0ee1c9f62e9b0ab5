// AdamW, for all parameters.
#include "headroom/ops/optimizers.h"

#include "optimizer.h"

namespace headroom::train {
namespace {

class AdamW : public Optimizer {
 public:
  void step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
            const config::TrainOptions& options, const nn::Context& /*context*/) const override {
    std::vector<at::Tensor> tensors;
    for (const nn::Parameter& parameter : parameters) {
      tensors.push_back(parameter.tensor);
    }
    ops::adamw_step(tensors, update.gradients, moments.m, moments.v, update.step,
                    {.learning_rate = update.learning_rate,
                     .beta1 = options.betas[0],
                     .beta2 = options.betas[1],
                     .epsilon = options.epsilon,
                     .weight_decay = options.weight_decay,
                     .gradient_scale = update.gradient_scale,
                     .implementation = options.implementation});
  }
};

}  // namespace

const Optimizer& adamw() {
  static const AdamW kAdamW;
  return kAdamW;
}

}  // namespace headroom::train
