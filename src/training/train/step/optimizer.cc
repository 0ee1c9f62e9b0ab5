#include "step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "foundation/core/transformed.h"
#include "headroom/ops/optimizers.h"

namespace headroom::train {

namespace {

// Defaults of PyTorch's OneCycleLR, which the papers used: the initial factor, and the position of the peak as a
// fraction of the run.
constexpr double kOneCycleStart = 1.0 / 25.0;
constexpr double kOneCyclePeak = 0.3;

double interpolate(double from, double to, double fraction) {
  return from + (to - from) * std::clamp(fraction, 0.0, 1.0);
}

double one_cycle(const config::TrainOptions& o, std::int64_t step) {
  const auto steps = static_cast<double>(o.steps);
  const double rise = o.warmup_steps > 0 ? static_cast<double>(o.warmup_steps) : std::floor(kOneCyclePeak * steps);
  const double peak = std::max(rise - 1.0, 0.0);  // the step at the peak rate
  const auto at = static_cast<double>(step);
  if (at < peak) {
    return interpolate(kOneCycleStart, 1.0, at / peak);
  }
  return interpolate(1.0, o.final_learning_rate, (at - peak) / std::max(steps - 1.0 - peak, 1.0));
}

}  // namespace

double learning_rate(const config::TrainOptions& o, std::int64_t step) {
  if (o.schedule == config::Schedule::one_cycle) {
    return o.learning_rate * one_cycle(o, step);
  }
  if (step < o.warmup_steps) {
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  }
  const bool whole = o.schedule == config::Schedule::cosine && o.cosine_period == config::CosinePeriod::steps;
  const std::int64_t period = whole ? o.steps : std::max(o.steps - o.warmup_steps, std::int64_t{1});
  const double fraction = static_cast<double>(step - o.warmup_steps) / static_cast<double>(period);
  double factor = 1.0;
  switch (o.schedule) {
    case config::Schedule::cosine:
      factor =
          interpolate(o.final_learning_rate, 1.0, 0.5 + 0.5 * std::cos(std::numbers::pi * std::min(fraction, 1.0)));
      break;
    case config::Schedule::linear:
      factor = interpolate(1.0, o.final_learning_rate, fraction);
      break;
    case config::Schedule::inverse_sqrt: {
      const auto peak = static_cast<double>(std::max(o.warmup_steps, std::int64_t{1}));
      factor = std::max(std::sqrt(peak / static_cast<double>(step + 1)), o.final_learning_rate);
      break;
    }
    case config::Schedule::constant:
    case config::Schedule::one_cycle:
      break;
  }
  return o.learning_rate * factor;
}

namespace {

void adamw_step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
                const config::TrainOptions& options) {
  std::vector<at::Tensor> tensors = transformed(parameters, &nn::Parameter::tensor);
  ops::adamw_step(tensors, update.gradients, moments.m, moments.v, update.step,
                  {.learning_rate = update.learning_rate,
                   .beta1 = options.betas[0],
                   .beta2 = options.betas[1],
                   .epsilon = options.epsilon,
                   .weight_decay = options.weight_decay,
                   .gradient_scale = update.gradient_scale,
                   .implementation = options.implementation});
}

// Reshapes the tensor to [batch, rows, columns].
at::Tensor as_matrices(const at::Tensor& tensor, nn::MatrixAxes axes) {
  std::int64_t batch = 1, rows = 1;
  for (std::int64_t axis = 0; axis < axes.batch + axes.rows; ++axis) {
    (axis < axes.batch ? batch : rows) *= tensor.size(axis);
  }
  return tensor.view({batch, rows, -1});
}

// Uses Muon for matrices that map hidden vectors to hidden vectors (nn::Parameter::hidden: projections and MLPs, one
// matrix per expert), and AdamW for all other parameters: embeddings, the output layer, biases, norms, routers,
// positions, maps between heads.
void muon_step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
               const config::TrainOptions& options, const nn::Context& context) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> matrices, gradients, m;
  std::vector<nn::Parameter> others;
  Moments moments_of_others;
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
      moments_of_others.m.push_back(moments.m[i]);
      moments_of_others.v.push_back(moments.v[i]);
    }
  }
  const bool has_own_rate = options.muon_learning_rate > 0.0;
  ops::muon_step(matrices, gradients, m,
                 {.learning_rate =
                      update.learning_rate * (has_own_rate ? options.muon_learning_rate / options.learning_rate : 1.0),
                  .momentum = options.muon_momentum,
                  .weight_decay = options.weight_decay,
                  .gradient_scale = update.gradient_scale,
                  .bfloat16 = context.compute_dtype == at::kBFloat16,
                  .implementation = options.implementation});
  adamw_step(others, moments_of_others, rest, options);
}

}  // namespace

void optimizer_step(const std::vector<nn::Parameter>& parameters, Moments& moments, const Update& update,
                    const config::TrainOptions& options, const nn::Context& context) {
  switch (options.optimizer) {
    case config::Optimizer::adamw:
      return adamw_step(parameters, moments, update, options);
    case config::Optimizer::muon:
      return muon_step(parameters, moments, update, options, context);
  }
}

}  // namespace headroom::train
