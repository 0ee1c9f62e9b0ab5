// What a run does next. All of it follows from the run's options, the step that it is at and its history, so that
// processes that train one model together decide alike, whichever of them writes.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "history.h"
#include "step.h"
#include "training/tasks/figures.h"

namespace headroom::train {

class Plan {
 public:
  // `kinds`: the figures of the run's validations.
  Plan(const config::Config& config, std::vector<tasks::FigureKind> kinds);

  bool finished(std::int64_t step) const { return step >= options_.steps; }
  // Of a run that did `step` steps: is it to be validated before the next one? A resumed run finds the validation of
  // its last step in its history, if it came so far.
  bool validates(std::int64_t step, const History& history) const;
  // After that step.
  bool logs(std::int64_t step) const;
  bool samples(std::int64_t step) const { return due(options_.sample_every, step); }
  bool saves(std::int64_t step) const { return due(options_.checkpoint_every, step); }
  // Once the run knows how long its steps take.
  void save_every(std::int64_t steps) { options_.checkpoint_every = steps; }

  // Whether a model of these figures is to be kept as the best. Where the run went on from before the validation that
  // the best so far was kept for, that one belonged to another run, and is removed.
  bool keeps_as_best(const tasks::Figures& figures, const History& history) const;

  // Why training cannot continue after such a step, or such a validation; empty: it can.
  static std::string diverged(const StepOutcome& outcome);
  std::string diverged(const tasks::Figures& figures) const;
  // Why the finished run has failed, though its loss is finite: a figure of its last validation is not, as the
  // perplexity of a loss of a thousand. Empty: it has not.
  std::string failed(const History& history) const;

  // What is to be said of the finished run: that it has learnt nothing, or unlearnt it. Empty: nothing.
  std::string remark(const History& history) const;

 private:
  static bool due(std::int64_t every, std::int64_t step) { return every > 0 && step > 0 && step % every == 0; }

  config::TrainOptions options_;
  std::vector<tasks::FigureKind> kinds_;
  double guessing_;  // the loss of guessing every class or token alike
};

// What to try where the loss rises or stops being finite: "a lower train.learning_rate, more train.warmup_steps, ...".
std::string advice(const config::TrainOptions& options);

// What is to be said of a finished run whose mean losses these were, `guessing` that of guessing every class or token
// alike; empty: nothing. A loss that rose a little is no divergence: it must also have been far below that of guessing.
std::string remark_on(double first_loss, double last_loss, double guessing, const config::TrainOptions& options = {});

}  // namespace headroom::train
