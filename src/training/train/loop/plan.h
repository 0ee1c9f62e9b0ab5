// The training plan: when a run logs, validates, samples and saves, and how it ends. A pure function of the options,
// the step and the history, so all ranks make the same decisions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "training/tasks/figures.h"
#include "training/train/record/history.h"
#include "training/train/step/step.h"

namespace headroom::train {

class TrainingPlan {
 public:
  // `kinds`: the figures that validations of the run report. `predictions`: Validations::predictions.
  TrainingPlan(const config::Config& config, std::vector<tasks::FigureKind> kinds, std::int64_t predictions = 0);

  bool finished(std::int64_t step) const { return step >= options_.steps; }
  // Returns whether to add a point to the learning curve after `step` steps: a validation of at most predictions()
  // predictions. False if the history already contains it, for example after resuming.
  bool validates(std::int64_t step, const History& history) const;
  std::int64_t predictions() const { return predictions_ > 0 ? predictions_ : options_.evaluate_tokens; }
  // Returns whether the points of the learning curve read only part of the data.
  bool validates_part() const { return predictions_ > 0; }
  // Returns whether a finished run must still be validated on all data (up to train.evaluate_tokens), because its
  // learning curve reads only part of it.
  bool validates_whole(std::int64_t step, const History& history) const;
  // Returns whether to log after that step.
  bool logs(std::int64_t step) const;
  bool samples(std::int64_t step) const { return due(options_.sample_every, step); }
  bool saves(std::int64_t step) const { return due(options_.checkpoint_every, step); }
  // Sets the checkpoint interval for train.checkpoint_every = "auto", once the speed of the run is known.
  void save_every(std::int64_t steps) { options_.checkpoint_every = steps; }

  // Returns whether these figures are the best so far. Also true if the run was resumed from a step before the previous
  // best, so that the history lacks its validation.
  bool keeps_as_best(const tasks::Figures& figures, const History& history) const;

  // Returns the reason why training cannot continue after this step or validation; empty if it can.
  static std::string diverged(const StepOutcome& outcome);
  std::string diverged(const tasks::Figures& figures) const;
  // Returns the reason why a finished run counts as failed: a figure of its last validation is not finite, for example
  // the perplexity at a loss of 1000. Empty if it has not failed.
  std::string failed(const History& history) const;

  // Returns a warning if the finished run has learnt nothing or has diverged; else empty.
  std::string remark(const History& history) const;

 private:
  static bool due(std::int64_t every, std::int64_t step) { return every > 0 && step > 0 && step % every == 0; }

  config::TrainOptions options_;
  std::vector<tasks::FigureKind> kinds_;
  std::int64_t predictions_;  // of each point of the learning curve; 0: all
  double guessing_;           // loss of a uniform guess
};

// Returns the loss of a uniform guess among the model's classes or tokens.
double guessing_loss(const config::ModelOptions& options);

// Returns suggestions for a loss that rises or is not finite: "a lower train.learning_rate, more train.warmup_steps,
// ...".
std::string advice(const config::TrainOptions& options);

// Returns TrainingPlan::remark() for these mean losses; `guessing` is the loss of a uniform guess. A run counts as
// diverged only if its loss has risen and is far above `guessing`.
std::string remark_on(double first_loss, double last_loss, double guessing, const config::TrainOptions& options = {});

// Intervals for "auto": short enough that a crash loses little. 0 means only at the end.

// The validations of a run with train.evaluate_every = "auto".
struct Validations {
  std::int64_t every = 0;        // steps between validations
  std::int64_t predictions = 0;  // the same predictions each time; 0: all
};
// Returns 20 validations in 2% of the training time. If complete validations take longer: at least 10 complete ones; if
// these take longer too: 10 on the part of the data that fits this time, or on 8192 predictions in up to 10% of the
// time, or else fewer. A run that keeps its best checkpoint needs complete validations, and gets fewer if they take
// longer. rows(n) is the cost of a validation of at most n predictions (EvaluationData::rows). The plan does not depend
// on the machine, so that all runs of a config have the same validations.
Validations plan_validations(const config::Config& config, const std::function<double(std::int64_t)>& rows);

// Returns the steps between checkpoints of `bytes` bytes: at most 1/10 of all steps or eight minutes, but enough to
// stay within 0.6% of the time. A short run still writes one checkpoint halfway if that takes at most 3% of its time.
std::int64_t steps_between_checkpoints(std::int64_t steps, double step_seconds, double bytes);

// Returns a log line: "validates every 50 steps ..., writes a checkpoint every 100 steps and at the end ...".
// `predictions`: Validations::predictions.
std::string describe_intervals(const config::TrainOptions& options, std::int64_t predictions = 0);

}  // namespace headroom::train
