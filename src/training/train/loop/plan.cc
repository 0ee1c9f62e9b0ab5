#include "plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::train {
namespace {

// Fractions of the training time that validations and checkpoints may take.
constexpr double kValidationFraction = 0.02, kMostValidationFraction = 0.1, kCheckpointFraction = 0.006;
// Forward-pass time as a fraction of training-step time, per row: a third for matmuls, plus an allowance for other
// work.
constexpr double kForward = 0.4;
constexpr double kHalfwayFraction = 0.03;  // fraction of a short run's time for a checkpoint halfway
constexpr double kLongestPause = 480.0;    // seconds between checkpoints; below ten minutes in case steps slow down
constexpr double kOverhead = 0.03, kBytesPerSecond = 2e8;  // for a slow disk: seconds per checkpoint, bytes per second

// Rounds the interval to whole steps; returns 0 (only at the end) if it is not shorter than the run.
std::int64_t every(double steps_between, std::int64_t steps) {
  return steps_between < static_cast<double>(steps) ? static_cast<std::int64_t>(steps_between) : 0;
}

std::string without_sign_of_nan(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

TrainingPlan::TrainingPlan(const config::Config& config, std::vector<tasks::FigureKind> kinds, std::int64_t predictions)
    : options_(config.train),
      kinds_(std::move(kinds)),
      predictions_(predictions),
      guessing_(guessing_loss(config.model)) {}

bool TrainingPlan::validates(std::int64_t step, const History& history) const {
  return (finished(step) || due(options_.evaluate_every, step)) && !history.validated(step, validates_part());
}

bool TrainingPlan::validates_whole(std::int64_t step, const History& history) const {
  return finished(step) && validates_part() && !history.validated(step, false);
}

bool TrainingPlan::logs(std::int64_t step) const {
  return step % options_.log_every == 0 || step == options_.steps;
}

bool TrainingPlan::keeps_as_best(const tasks::Figures& figures, const History& history) const {
  if (!options_.keep_best) {
    return false;
  }
  const auto best_point = std::ranges::find(history.validations, history.best_step, &ValidationPoint::step);
  const tasks::FigureKind& kind = tasks::headline(kinds_);
  const double now = tasks::figure(figures, kind.name);
  const double best = best_point == history.validations.end() ? NAN : tasks::figure(best_point->figures, kind.name);
  const bool keeps_old = kind.better == tasks::Better::higher ? best >= now : best <= now;
  return !keeps_old;
}

std::string TrainingPlan::diverged(const StepOutcome& outcome) {
  if (outcome.finite()) {
    return "";
  }
  return fmt::format("the loss is {} and the gradient norm {}", without_sign_of_nan(outcome.loss),
                     without_sign_of_nan(outcome.gradient_norm));
}

std::string TrainingPlan::diverged(const tasks::Figures& figures) const {
  const tasks::FigureKind& first = kinds_.front();
  const double value = tasks::figure(figures, first.name);
  return std::isfinite(value) ? "" : fmt::format("the validation {} is {}", first.words, without_sign_of_nan(value));
}

std::string TrainingPlan::failed(const History& history) const {
  if (history.validations.empty()) {
    return "";
  }
  tasks::Figures figures = history.validations.back().figures;
  tasks::complete(figures, kinds_);  // files omit values that are not finite
  for (const tasks::FigureKind& kind : kinds_) {
    const auto found = figures.find(kind.name);
    if (found != figures.end() && !std::isfinite(found->second)) {
      return fmt::format("the validation {} is {} after the last step, {}", kind.words, found->second, options_.steps);
    }
  }
  return "";
}

std::string TrainingPlan::remark(const History& history) const {
  return remark_on(history.first_loss(), history.last_loss(), guessing_, options_);
}

double guessing_loss(const config::ModelOptions& options) {
  return std::log(static_cast<double>(options.has_classes() ? options.n_classes : options.vocabulary_size));
}

std::string advice(const config::TrainOptions& options) {
  const std::string clipping =
      options.clip_norm > 0.0
          ? "a smaller train.clip_norm"
          : fmt::format("train.clip_norm = {} (it is 0, which clips nothing)", config::TrainOptions().clip_norm);
  return "a lower train.learning_rate, more train.warmup_steps or " + clipping;
}

std::string remark_on(double first_loss, double last_loss, double guessing, const config::TrainOptions& options) {
  constexpr double kNoise = 1.01;  // ratio; smaller differences between means over a few batches are noise
  constexpr double kFar = 1.5;
  if (last_loss > kNoise * first_loss && last_loss > kFar * guessing) {
    return fmt::format(
        "the run diverged: its last training loss {:.4g} is above its first, {:.4g}, and far above that of guessing, "
        "{:.4g}; try {}",
        last_loss, first_loss, guessing, advice(options));
  }
  if (last_loss > kNoise * guessing) {
    return fmt::format(
        "the run has learnt nothing yet: its last training loss {:.4g} is above that of guessing, {:.4g}", last_loss,
        guessing);
  }
  return "";
}

Validations plan_validations(const config::Config& config, const std::function<double(std::int64_t)>& rows) {
  constexpr double kMost = 20.0, kFewest = 10.0;
  constexpr std::int64_t kLeastPredictions = 8192;  // enough for a mean loss precise to about 0.03 nats
  const auto steps = static_cast<double>(config.train.steps);
  // Returns the interval, in steps, for validations that each cost as much as this many training rows.
  const auto between = [&](double cost, double fraction = kValidationFraction) {
    return std::ceil(kForward * cost / static_cast<double>(std::max<std::int64_t>(1, config.whole_sequences())) /
                     fraction);
  };
  const double all = rows(config.train.evaluate_tokens), longest = std::ceil(steps / kFewest);
  if (config.train.keep_best || between(all) <= longest) {
    return {.every = every(std::max(std::ceil(steps / kMost), between(all)), config.train.steps)};
  }
  std::int64_t predictions = kLeastPredictions;
  while (rows(predictions) < all && between(rows(2 * predictions)) <= longest) {
    predictions *= 2;
  }
  const double cost = std::min(rows(predictions), all);
  const std::int64_t interval = every(std::max(longest, between(cost, kMostValidationFraction)), config.train.steps);
  return {.every = interval, .predictions = interval > 0 && cost < all ? predictions : 0};
}

std::int64_t steps_between_checkpoints(std::int64_t steps, double step_seconds, double bytes) {
  const double step = std::max(step_seconds, 1e-9), cost = (kOverhead + bytes / kBytesPerSecond) / step;
  const double wanted = std::min(std::ceil(static_cast<double>(steps) / 10.0), std::floor(kLongestPause / step));
  double affordable = std::ceil(cost / kCheckpointFraction);
  if (cost <= kHalfwayFraction * static_cast<double>(steps)) {
    affordable = std::min(affordable, std::ceil(static_cast<double>(steps) / 2.0));
  }
  return every(std::max({1.0, wanted, affordable}), steps);
}

std::string describe_intervals(const config::TrainOptions& options, std::int64_t predictions) {
  const auto when = [](std::int64_t steps) {
    return steps == 0   ? std::string("at the end only")
           : steps == 1 ? std::string("after every step")
                        : fmt::format("every {} steps and at the end", steps);
  };
  const std::string checkpoints = options.checkpoint_every == config::kAutomatic
                                      ? "at intervals set by the speed of the first steps"
                                      : when(options.checkpoint_every);
  const std::string part = predictions > 0
                               ? fmt::format(" on the same {} spread over the data, after the last step also on all",
                                             counted(predictions, "prediction"))
                               : "";
  return fmt::format("validates {}{} (train.evaluate_every), writes a checkpoint {} (train.checkpoint_every)",
                     when(options.evaluate_every), part, checkpoints);
}

}  // namespace headroom::train
