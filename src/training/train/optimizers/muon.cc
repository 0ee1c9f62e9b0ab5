// Muon for the layers' matrices from hidden vectors to hidden vectors (nn::Parameter::hidden: projections and MLPs,
// each expert's matrix by itself); AdamW for all others: embeddings, the output layer, biases, norms, routers,
// positions, maps between heads.
#include "headroom/ops/optimizers.h"

#include <ATen/core/grad_mode.h>

#include "optimizer.h"

namespace headroom::train {
namespace {

at::Tensor as_matrices(const at::Tensor& tensor, nn::MatrixAxes axes) {
  std::int64_t batch = 1, rows = 1;
  for (std::int64_t axis = 0; axis < axes.batch + axes.rows; ++axis) {
    (axis < axes.batch ? batch : rows) *= tensor.size(axis);
  }
  return tensor.view({batch, rows, -1});
}

class Muon : public Optimizer {
 public:
  void step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
            const config::TrainOptions& options, const nn::Context& context) const override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> matrices, gradients, m;
    std::vector<nn::Parameter> others;
    Moments of_others;
    Update rest = update;
    rest.gradients.clear();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (const std::optional<nn::MatrixAxes> axes = parameters[i].hidden) {
        matrices.push_back(as_matrices(parameters[i].tensor, *axes));
        gradients.push_back(as_matrices(update.gradients[i].contiguous(), *axes));
        m.push_back(as_matrices(moments.m[i], *axes));
      } else {
        others.push_back(parameters[i]);
        rest.gradients.push_back(update.gradients[i]);
        of_others.m.push_back(moments.m[i]);
        of_others.v.push_back(moments.v[i]);
      }
    }
    const bool own_rate = options.muon_learning_rate > 0.0;
    ops::muon_step(
        matrices, gradients, m,
        {.learning_rate = update.learning_rate * (own_rate ? options.muon_learning_rate / options.learning_rate : 1.0),
         .momentum = options.muon_momentum,
         .weight_decay = options.weight_decay,
         .gradient_scale = update.gradient_scale,
         .bfloat16 = context.compute_dtype == at::kBFloat16,
         .implementation = options.implementation});
    adamw().step(others, of_others, rest, options, context);
  }
};

}  // namespace

const Optimizer& muon() {
  static const Muon kMuon;
  return kMuon;
}

}  // namespace headroom::train
