#include "headroom/train/step.h"

#include <cmath>
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
  for (std::int64_t i = 0; i < options.accumulate; ++i) {
    context.random = {.seed = seed, .first_row = i * rows, .rows = rows};
    memories.push_back(state.memory.narrow(i * rows, rows));
    const models::Batch micro = batch.narrow(i * rows, rows);
    const models::Loss loss = model.loss(micro, memories.back(), context);
    const double share = static_cast<double>(micro.n_targets()) / all_targets;
    loss.total().mul(share).backward();
    outcome.loss += loss.cross_entropy.item<double>() * share;
    outcome.regulariser += loss.regulariser.defined() ? loss.regulariser.item<double>() * share : 0.0;
  }
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
