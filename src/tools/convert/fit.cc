#include "fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "foundation/core/transformed.h"
#include "headroom/models/language_model.h"
#include "headroom/ops/optimizers.h"
#include "training/train/step/teacher.h"

namespace headroom::convert {
namespace {

constexpr double kWarmupSteps = 5.0, kClip = 1.0;

at::Tensor error_of(const LayerOutput& output, const LayerActivations& a) {
  return (output(a) - a.y).square().sum();
}

double relative_error(const LayerOutput& output, const LayerActivations& activations) {
  const at::NoGradGuard guard;
  double error = 0.0;
  for (std::int64_t i = 0; i < activations.x.size(0); ++i) {
    error += error_of(output, activations.narrow(i, 1)).item<double>();
  }
  return error / activations.y.square().sum().item<double>();
}

double rate_at(std::int64_t step, const FitOptions& options) {
  const double s = static_cast<double>(step), n = static_cast<double>(options.steps);
  return options.learning_rate * std::min(1.0, (s + 1.0) / kWarmupSteps) * (n - s) / n;
}

// Runs AdamW on the parameters in place, with gradients clipped to a norm of 1. add_gradients() is called once per step
// and adds the gradients of the step's loss to the parameters' (by backward()).
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

// Runs descend(), and restores the starting values unless error() has decreased.
FitErrors improve(const std::vector<at::Tensor>& parameters, const FitOptions& options,
                  const std::function<double()>& error, const std::function<void()>& add_gradients) {
  FitErrors errors{.start = error()};
  const std::vector<at::Tensor> start =
      transformed(parameters, [](const at::Tensor& parameter) { return parameter.detach().clone(); });
  descend(parameters, options, add_gradients);
  errors.fitted = error();
  if (errors.fitted < errors.start) {
    return errors;
  }
  const at::NoGradGuard guard;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i];
    parameter.copy_(start[i]);
  }
  errors.fitted = errors.start;
  return errors;
}

}  // namespace

FitErrors fit(const LayerOutput& output, const std::vector<at::Tensor>& parameters, const LayerActivations& activations,
              const LayerActivations& held_out, const FitOptions& options) {
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  const std::int64_t n = activations.x.size(0);
  const auto add_gradients = [&] {
    const LayerActivations part =
        activations.select(at::randint(n, {std::min(n, options.sequences)}, random, at::kLong));
    (error_of(output, part) / part.y.square().sum()).backward();
  };
  return improve(
      parameters, options, [&] { return relative_error(output, held_out); }, add_gradients);
}

namespace {

constexpr double kRidge = 1e-3;
constexpr double kLeastRidge = 1e-9;  // of the constant

}  // namespace

at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool constant) {
  const std::int64_t n = gram.size(0), features = n - (constant ? 1 : 0);
  at::Tensor penalty = at::zeros({n}, gram.options());
  penalty.narrow(0, 0, features).fill_(kRidge * gram.diagonal().narrow(0, 0, features).mean().item<double>());
  if (constant) {
    penalty[n - 1] = kLeastRidge * gram[n - 1][n - 1];
  }
  at::Tensor left = gram.clone();
  left.diagonal().add_(penalty);
  const at::Tensor factor = at::linalg_cholesky(left);
  left.reset();  // cholesky_solve() copies the factor; without `left`, only two such matrices exist
  return at::cholesky_solve(cross, factor);
}

namespace {

constexpr std::int64_t kTop = 64;              // likeliest tokens per prediction
constexpr std::int64_t kMostLogits = 1 << 24;  // per pass; limits the memory for large vocabularies

// Batches with the source's predictions, in parts of few enough logits for one pass. Predictions are computed when a
// batch is first read, and stored.
class TaughtBatches {
 public:
  TaughtBatches(const models::Model& source, const std::vector<models::Batch>& batches)
      : source_(source), batches_(batches), parts_(batches.size()) {}

  std::size_t size() const { return batches_.size(); }

  const std::vector<models::Batch>& at(std::size_t i) {
    if (parts_[i].empty()) {
      const models::Batch& batch = batches_[i];
      const config::ModelOptions& o = source_.options();
      const std::int64_t rows = std::max<std::int64_t>(1, kMostLogits / (o.context_length * o.vocabulary_size));
      for (std::int64_t first = 0; first < batch.rows(); first += rows) {
        parts_[i].push_back(taught(batch.narrow(first, std::min(rows, batch.rows() - first))));
      }
    }
    return parts_[i];
  }

 private:
  models::Batch taught(models::Batch batch) const {
    const at::NoGradGuard guard;
    const at::Tensor& all = batch.at("tokens");
    const at::Tensor tokens = batch.find("targets").defined() ? all : all.slice(1, 0, -1);
    models::Memory memory;
    const at::Tensor logits = models::as_language_model(source_, "convert").logits(tokens, memory, {});
    const std::int64_t k = std::min(kTop, source_.options().vocabulary_size - 1);
    const train::TopPredictions top = train::top_predictions(logits, k, 1.0);
    batch.distillation = {.weight = 1.0, .temperature = 1.0};
    batch.tensors["teacher"] = top.log_probability;
    batch.tensors["teacher_index"] = top.index;
    return batch;
  }

  const models::Model& source_;
  const std::vector<models::Batch>& batches_;
  std::vector<std::vector<models::Batch>> parts_;
};

at::Tensor divergence_of(const models::Model& model, const models::Batch& part) {
  models::Memory memory;
  return model.loss(part, memory, {}).divergence;
}

std::int64_t targets_of(const std::vector<models::Batch>& parts) {
  return sum_over(parts, &models::Batch::n_targets);
}

double mean_divergence(const models::Model& model, TaughtBatches& batches) {
  const at::NoGradGuard guard;
  double sum = 0.0, targets = 0.0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (const models::Batch& part : batches.at(i)) {
      const auto n = static_cast<double>(part.n_targets());
      sum += (divergence_of(model, part) * n).item<double>();
      targets += n;
    }
  }
  return sum / targets;
}

}  // namespace

FitErrors fit_together(const models::Model& source, const models::Model& model,
                       const std::vector<at::Tensor>& parameters, const Batches& batches, const FitOptions& options) {
  for (nn::Parameter other : model.parameters().all()) {
    other.tensor.requires_grad_(false);
  }
  for (const at::Tensor& parameter : parameters) {
    parameter.requires_grad_(true);
  }
  TaughtBatches fit(source, batches.fit), held_out(source, batches.held_out);
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  const auto n = static_cast<std::int64_t>(fit.size());
  const auto add_gradients = [&] {
    const auto chosen = static_cast<std::size_t>(at::randint(n, {1}, random, at::kLong).item<std::int64_t>());
    const std::vector<models::Batch>& parts = fit.at(chosen);
    const auto targets = static_cast<double>(targets_of(parts));
    for (const models::Batch& part : parts) {
      (divergence_of(model, part) * (static_cast<double>(part.n_targets()) / targets)).backward();
    }
  };
  return improve(
      parameters, options, [&] { return mean_divergence(model, held_out); }, add_gradients);
}

}  // namespace headroom::convert
