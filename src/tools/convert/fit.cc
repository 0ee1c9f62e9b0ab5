#include "fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "headroom/ops/optimizers.h"

namespace headroom::convert {
namespace {

constexpr double kWarmupSteps = 5.0, kClip = 1.0;

at::Tensor error_of(const LayerOutput& output, const LayerActivations& a) {
  return (output(a) - a.y).square().sum();
}

double rate_at(std::int64_t step, const FitOptions& options) {
  const double s = static_cast<double>(step), n = static_cast<double>(options.steps);
  return options.learning_rate * std::min(1.0, (s + 1.0) / kWarmupSteps) * (n - s) / n;
}

}  // namespace

double relative_error(const LayerOutput& output, const LayerActivations& activations) {
  const at::NoGradGuard guard;
  double error = 0.0;
  for (std::int64_t i = 0; i < activations.x.size(0); ++i) {
    error += error_of(output, activations.narrow(i, 1)).item<double>();
  }
  return error / activations.y.square().sum().item<double>();
}

void descend(const std::vector<at::Tensor>& parameters, const FitOptions& options,
             const std::function<void()>& add_gradients) {
  std::vector<at::Tensor> m, v;
  for (const at::Tensor& parameter : parameters) {
    m.push_back(at::zeros_like(parameter));
    v.push_back(at::zeros_like(parameter));
  }
  for (std::int64_t step = 0; step < options.steps; ++step) {
    add_gradients();
    std::vector<at::Tensor> moved, gradients, first, second;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].grad().defined()) {
        moved.push_back(parameters[i]);
        gradients.push_back(parameters[i].grad());
        first.push_back(m[i]);
        second.push_back(v[i]);
      }
    }
    const double norm = ops::global_norm(gradients);
    const at::NoGradGuard guard;
    ops::adamw_step(moved, gradients, first, second, step + 1,
                    {.learning_rate = rate_at(step, options),
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .gradient_scale = norm > kClip ? kClip / norm : 1.0});
    for (at::Tensor parameter : parameters) {
      parameter.mutable_grad().reset();
    }
  }
}

SavedValues::SavedValues(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  for (const at::Tensor& parameter : parameters) {
    values_.push_back(parameter.detach().clone());
  }
}

void SavedValues::restore() const {
  const at::NoGradGuard guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i];
    parameter.copy_(values_[i]);
  }
}

FitErrors fit(const LayerOutput& output, const std::vector<at::Tensor>& parameters, const LayerActivations& activations,
              const LayerActivations& held_out, const FitOptions& options) {
  FitErrors errors{.start = relative_error(output, held_out)};
  errors.fitted = errors.start;
  const SavedValues start(parameters);
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  const std::int64_t n = activations.x.size(0);
  descend(parameters, options, [&] {
    const LayerActivations part =
        activations.select(at::randint(n, {std::min(n, options.sequences)}, random, at::kLong));
    (error_of(output, part) / part.y.square().sum()).backward();
  });
  const double fitted = relative_error(output, held_out);
  if (fitted < errors.start) {
    errors.fitted = fitted;
  } else {
    start.restore();
  }
  return errors;
}

}  // namespace headroom::convert
