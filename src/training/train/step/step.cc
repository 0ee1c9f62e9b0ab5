#include "step.h"

#include <cmath>
#include <utility>
#include <vector>

#include "foundation/core/random.h"

namespace headroom::train {
namespace {

// The micro-batches of a step, independent of the rank.
class MicroBatches {
 public:
  MicroBatches(const StepModels& models, const models::Batch& batch, const config::TrainOptions& options,
               std::int64_t step)
      : model_(models.model),
        teacher_(models.teacher),
        batch_(batch),
        seed_(mix(static_cast<std::uint64_t>(options.seed), static_cast<std::uint64_t>(step))),
        rows_(batch.rows() / options.accumulate),
        all_targets_(static_cast<double>(batch.n_targets())) {}

  std::int64_t rows() const { return rows_; }  // per micro-batch

  // Implements StepPasses::forward().
  at::Tensor loss(models::Memory& memory, nn::Context context, MicroBatchReport& report) const {
    const std::int64_t first = report.micro_batch * rows_;
    context.updates = &report.updates;
    context.random = {.seed = seed_, .first_row = first, .rows = rows_};
    models::Batch micro = batch_.narrow(first, rows_);
    if (teacher_ != nullptr) {
      teacher_->add_predictions(micro, context);
    }
    const models::Loss loss = model_.loss(micro, memory, context);
    const double weight = static_cast<double>(micro.n_targets()) / all_targets_;
    const auto weighted = [weight](const at::Tensor& value) { return value.detach().to(at::kDouble) * weight; };
    report.cross_entropy = weighted(loss.cross_entropy);
    report.regulariser = loss.regulariser.defined() ? weighted(loss.regulariser) : at::Tensor();
    return loss.total().mul(weight);
  }

 private:
  const models::Model& model_;
  Teacher* teacher_;
  const models::Batch& batch_;
  std::uint64_t seed_;
  std::int64_t rows_;
  double all_targets_;
};

// Updates the shards that this rank owns.
void update_parameters(const std::vector<nn::Parameter>& parameters, TrainState& state, const StepOutcome& outcome,
                       const config::TrainOptions& options, const nn::Context& context, GradientReducer& reducer) {
  std::vector<nn::Parameter> own;
  for (const Shard& shard : reducer.owned()) {
    own.push_back(parameters[shard.tensor]);
    own.back().tensor = view_of(own.back().tensor, shard);
  }
  const bool clip = options.clip_norm > 0.0 && outcome.gradient_norm > options.clip_norm;
  optimizer_step(own, state.moments,
                 {.step = state.step + 1,
                  .learning_rate = outcome.learning_rate,
                  .gradient_scale = clip ? options.clip_norm / outcome.gradient_norm : 1.0,
                  .gradients = reducer.gradients()},
                 options, context);
}

}  // namespace

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(regulariser) && std::isfinite(gradient_norm);
}

StepOutcome train_step(StepModels models, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context) {
  return train_step(models, batch, state, options, context, *local_reducer(models.model, options));
}

StepOutcome train_step(StepModels models, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context, GradientReducer& reducer) {
  context.training = true;
  const MicroBatches micro_batches(models, batch, options, state.step);
  const auto forward = [&](models::Memory& memory, MicroBatchReport& report) {
    return micro_batches.loss(memory, context, report);
  };
  ReducedStep step = reducer.run({.forward = forward,
                                  .memory = state.memory,
                                  .rows = micro_batches.rows(),
                                  .verify = options.verify_every > 0 && (state.step + 1) % options.verify_every == 0});
  const StepOutcome outcome{.loss = step.loss,
                            .regulariser = step.regulariser,
                            .gradient_norm = step.gradient_norm,
                            .learning_rate = learning_rate(options, state.step),
                            .stop = step.stop};
  if (outcome.finite()) {
    update_parameters(models.model.parameters().all(), state, outcome, options, context, reducer);
    nn::apply(step.updates);
    state.memory = std::move(step.memory);
    ++state.step;
  }
  reducer.publish(outcome.finite());
  return outcome;
}

}  // namespace headroom::train
