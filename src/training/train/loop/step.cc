#include "step.h"

#include <cmath>
#include <utility>
#include <vector>

#include "foundation/core/random.h"
#include "train.h"
#include "training/train/optimizers/optimizer.h"
#include "training/train/ranks/exchange.h"

namespace headroom::train {
namespace {

// The micro-batches of a step, whoever computes them.
class MicroBatches {
 public:
  MicroBatches(const models::Model& model, const models::Batch& batch, const config::TrainOptions& options,
               std::int64_t step)
      : model_(model),
        batch_(batch),
        seed_(mix(static_cast<std::uint64_t>(options.seed), static_cast<std::uint64_t>(step))),
        rows_(batch.rows() / options.accumulate),
        all_targets_(static_cast<double>(batch.n_targets())) {}

  std::int64_t rows() const { return rows_; }  // of each

  // Its share of the step's loss. Reads `memory` and leaves the micro-batch's there.
  at::Tensor loss(models::Memory& memory, nn::Context context, Report& report) const {
    const std::int64_t first = report.micro_batch * rows_;
    context.updates = &report.updates;
    context.random = {.seed = seed_, .first_row = first, .rows = rows_};
    const models::Batch micro = batch_.narrow(first, rows_);
    const models::Loss loss = model_.loss(micro, memory, context);
    const double share = static_cast<double>(micro.n_targets()) / all_targets_;
    const auto shared = [share](const at::Tensor& value) { return value.detach().to(at::kDouble) * share; };
    report.cross_entropy = shared(loss.cross_entropy);
    report.regulariser = loss.regulariser.defined() ? shared(loss.regulariser) : at::Tensor();
    return loss.total().mul(share);
  }

 private:
  const models::Model& model_;
  const models::Batch& batch_;
  std::uint64_t seed_;
  std::int64_t rows_;
  double all_targets_;
};

struct Moving {
  std::int64_t step;  // done so far
  const config::TrainOptions& options;
  const nn::Context& context;
};

// What this process looks after.
void move(const std::vector<nn::Parameter>& parameters, Moments& moments, const StepOutcome& outcome, const Moving& how,
          Exchange& exchange) {
  std::vector<nn::Parameter> own;
  for (const Piece& piece : exchange.owned()) {
    own.push_back(parameters[piece.tensor]);
    own.back().tensor = piece_of(own.back().tensor, piece);
  }
  const double most = how.options.clip_norm;
  const bool clip = most > 0.0 && outcome.gradient_norm > most;
  optimizer_named(how.options.optimizer)
      .step(own, moments,
            {.step = how.step + 1,
             .learning_rate = outcome.learning_rate,
             .gradient_scale = clip ? most / outcome.gradient_norm : 1.0,
             .gradients = exchange.gradients()},
            how.options, how.context);
}

}  // namespace

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(regulariser) && std::isfinite(gradient_norm);
}

StepOutcome train_step(models::Model& model, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context) {
  return train_step(model, batch, state, options, context, *local_exchange(model, options));
}

StepOutcome train_step(models::Model& model, const models::Batch& batch, TrainState& state,
                       const config::TrainOptions& options, nn::Context context, Exchange& exchange) {
  context.training = true;
  const MicroBatches micro_batches(model, batch, options, state.step);
  if (options.verify_every > 0 && (state.step + 1) % options.verify_every == 0) {
    exchange.verify(state.memory, [&](const Part& part, const models::Memory& memory) {
      for (std::int64_t i = part.first; i < part.end; ++i) {
        models::Memory own = memory.narrow((i - part.first) * micro_batches.rows(), micro_batches.rows());
        Report discarded{.micro_batch = i};
        micro_batches.loss(own, context, discarded).backward();
      }
    });
  }
  std::vector<models::Memory> memories;
  std::vector<Report> reports;
  const auto loss_of = [&](std::int64_t i) {
    memories.push_back(state.memory.narrow(std::ssize(memories) * micro_batches.rows(), micro_batches.rows()));
    return micro_batches.loss(memories.back(), context, reports.emplace_back(Report{.micro_batch = i}));
  };
  for (const Part& part : exchange.parts()) {
    at::Tensor loss = part.first < part.end ? loss_of(part.first) : at::Tensor();
    exchange.begin(part);  // only now: what the part before sends has the time of a forward pass
    for (std::int64_t i = part.first; i < part.end; ++i) {
      loss = i == part.first ? loss : loss_of(i);
      if (i + 1 == part.end) {
        exchange.last_backward();
      }
      loss.backward();
      loss.reset();
    }
    exchange.end(part);
  }
  const Gathered all = exchange.gather(std::move(reports));
  const StepOutcome outcome{.loss = all.loss,
                            .regulariser = all.regulariser,
                            .gradient_norm = all.gradient_norm,
                            .learning_rate = learning_rate(options, state.step),
                            .stop = all.stop};
  if (outcome.finite()) {
    move(model.parameters().all(), state.moments, outcome, {.step = state.step, .options = options, .context = context},
         exchange);
    nn::apply(all.updates);
    state.memory = models::Memory::join(std::move(memories));
    ++state.step;
  }
  exchange.publish(outcome.finite());
  return outcome;
}

}  // namespace headroom::train
