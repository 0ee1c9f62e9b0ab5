#include "headroom/train/step.h"

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/core/random.h"
#include "headroom/ops/adamw.h"
#include "headroom/train/optimizer.h"
#include "headroom/train/train.h"

namespace headroom::train {
namespace {

std::vector<at::Tensor> gradients_of(const nn::Parameters& parameters) {
  std::vector<at::Tensor> gradients;
  for (const nn::Parameter& parameter : parameters.all()) {
    const at::Tensor& gradient = parameter.tensor.grad();
    // A parameter that no token came by (an expert bank never chosen) has none.
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(parameter.tensor.detach()));
  }
  return gradients;
}

// Of micro-batches, kept on the device until all are under way: to read a number is to wait for it.
class LossSum {
 public:
  void add(const models::Loss& loss, double share) {
    add(cross_entropy_, loss.cross_entropy, share);
    if (loss.regulariser.defined()) {
      add(regulariser_, loss.regulariser, share);
    }
  }
  // Cross-entropy, and the regulariser or 0.
  std::pair<double, double> read() const {
    if (!regulariser_.defined()) {
      return {cross_entropy_.item<double>(), 0.0};
    }
    const at::Tensor both = at::stack({cross_entropy_, regulariser_}).cpu();
    return {both[0].item<double>(), both[1].item<double>()};
  }

 private:
  static void add(at::Tensor& sum, const at::Tensor& value, double share) {
    const at::Tensor part = value.detach().to(at::kDouble) * share;
    sum = sum.defined() ? sum + part : part;
  }
  at::Tensor cross_entropy_, regulariser_;  // float64
};

}  // namespace

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(regulariser) && std::isfinite(gradient_norm);
}

StepOutcome train_step(models::Model& model, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context) {
  context.training = true;
  const std::int64_t rows = batch.rows() / options.accumulate;
  const auto all_targets = static_cast<double>(batch.n_targets());
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(options.seed), static_cast<std::uint64_t>(state.step));
  nn::BufferUpdates updates;
  context.updates = &updates;
  StepOutcome outcome{.learning_rate = learning_rate(options, state.step)};
  std::vector<models::Memory> memories;
  LossSum sum;
  for (std::int64_t i = 0; i < options.accumulate; ++i) {
    context.random = {.seed = seed, .first_row = i * rows, .rows = rows};
    memories.push_back(state.memory.narrow(i * rows, rows));
    const models::Batch micro = batch.narrow(i * rows, rows);
    const models::Loss loss = model.loss(micro, memories.back(), context);
    const double share = static_cast<double>(micro.n_targets()) / all_targets;
    loss.total().mul(share).backward();
    sum.add(loss, share);
  }
  std::tie(outcome.loss, outcome.regulariser) = sum.read();
  std::vector<at::Tensor> gradients = gradients_of(model.parameters());
  outcome.gradient_norm = ops::global_norm(gradients);
  if (outcome.finite()) {
    const bool clip = options.clip_norm > 0.0 && outcome.gradient_norm > options.clip_norm;
    optimizer_named(options.optimizer)
        .step(model.parameters().all(), state.moments,
              {.step = state.step + 1,
               .learning_rate = outcome.learning_rate,
               .gradient_scale = clip ? options.clip_norm / outcome.gradient_norm : 1.0,
               .gradients = std::move(gradients)},
              options, context);
    nn::apply(updates);
    state.memory = models::Memory::join(std::move(memories));
    ++state.step;
  }
  model.parameters().zero_grad();
  return outcome;
}

}  // namespace headroom::train
