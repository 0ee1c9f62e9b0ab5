#include "plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::train {

Plan::Plan(const config::Config& config, std::vector<tasks::FigureKind> kinds)
    : options_(config.train), kinds_(std::move(kinds)) {
  const config::ModelOptions& o = config.model;
  guessing_ = std::log(static_cast<double>(o.has_classes() ? o.n_classes : o.vocabulary_size));
}

bool Plan::validates(std::int64_t step, const History& history) const {
  return (finished(step) || due(options_.evaluate_every, step)) && !history.validated(step);
}

bool Plan::logs(std::int64_t step) const {
  return step % options_.log_every == 0 || step == options_.steps;
}

bool Plan::keeps_as_best(const tasks::Figures& figures, const History& history) const {
  if (!options_.keep_best) {
    return false;
  }
  const auto then = std::find_if(history.validations.begin(), history.validations.end(),
                                 [&](const ValidationPoint& point) { return point.step == history.best_step; });
  const tasks::FigureKind& kind = tasks::headline(kinds_);
  const double now = tasks::figure(figures, kind.name);
  const double best = then == history.validations.end() ? NAN : tasks::figure(then->figures, kind.name);
  const bool stays = kind.better == tasks::Better::higher ? best >= now : best <= now;
  return !stays;
}

std::string Plan::diverged(const StepOutcome& outcome) {
  if (outcome.finite()) {
    return "";
  }
  const auto figure = [](double value) { return std::isnan(value) ? std::string("nan") : fmt::format("{}", value); };
  return fmt::format("the loss is {} and the gradient norm {}", figure(outcome.loss), figure(outcome.gradient_norm));
}

std::string Plan::diverged(const tasks::Figures& figures) const {
  const tasks::FigureKind& first = kinds_.front();
  const double value = tasks::figure(figures, first.name);
  return std::isfinite(value) ? "" : fmt::format("the validation {} is {}", first.words, value);
}

std::string Plan::failed(const History& history) const {
  if (history.validations.empty()) {
    return "";
  }
  tasks::Figures figures = history.validations.back().figures;
  tasks::complete(figures, kinds_);  // files hold no number that is not finite
  for (const tasks::FigureKind& kind : kinds_) {
    const auto found = figures.find(kind.name);
    if (found != figures.end() && !std::isfinite(found->second)) {
      return fmt::format("the validation {} is {} after the last step, {}", kind.words, found->second, options_.steps);
    }
  }
  return "";
}

std::string Plan::remark(const History& history) const {
  return remark_on(history.first_loss(), history.last_loss(), guessing_, options_);
}

std::string advice(const config::TrainOptions& options) {
  const std::string clipping =
      options.clip_norm > 0.0
          ? "a smaller train.clip_norm"
          : fmt::format("train.clip_norm = {} (it is 0, which clips nothing)", config::TrainOptions().clip_norm);
  return "a lower train.learning_rate, more train.warmup_steps or " + clipping;
}

std::string remark_on(double first_loss, double last_loss, double guessing, const config::TrainOptions& options) {
  constexpr double kChance = 1.01;  // of two means over a few batches
  constexpr double kFar = 1.5;
  if (last_loss > kChance * first_loss && last_loss > kFar * guessing) {
    return fmt::format(
        "the run diverged: its last training loss {:.4g} is above its first, {:.4g}, and far above {:.4g}, that of "
        "guessing; try {}",
        last_loss, first_loss, guessing, advice(options));
  }
  if (last_loss > kChance * guessing) {
    return fmt::format(
        "the run has learnt nothing yet: its last training loss {:.4g} is above {:.4g}, that of guessing", last_loss,
        guessing);
  }
  return "";
}

}  // namespace headroom::train
