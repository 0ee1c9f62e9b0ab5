#include "conclusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "effective_speedup.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "scaling.h"
#include "tools/compare/formatting.h"

namespace headroom::compare {
namespace {

struct Cost {
  const char* name;
  double own, other;
};

std::vector<Cost> costs_of(const ComparedRun& run, const ComparedRun& other) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  return {{"attention MACs", number(run.attention_macs), number(other.attention_macs)},
          {"attention memory", number(run.attention_memory), number(other.attention_memory)},
          {"training time", run.mean_seconds(), other.mean_seconds()},
          {"peak memory", run.peak_memory_bytes(), other.peak_memory_bytes()},
          {"parameters", number(run.result().parameters), number(other.result().parameters)}};
}

// Returns a warning to append to a sentence if the number of seeds is too small for a useful interval; else empty.
std::string_view two_seeds_caveat(std::size_t seeds) {
  return seeds == 2 ? " Intervals of two seeds are very wide: 12.7 standard errors to each side, with three seeds 4.3."
                    : "";
}

}  // namespace

std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other) {
  const tasks::FigureKind& kind = run.headline_kind();
  return paired_difference(run.over_seeds(kind.name), other.over_seeds(kind.name), kind.range);
}

std::string headline_comparison(const ComparedRun& run, const ComparedRun& other, std::string_view called) {
  called = called.empty() ? other.name : called;
  const double percent = 100.0 * (run.headline() / other.headline() - 1.0);
  std::string than = fmt::format("{} ({})", called, plain_number(other.headline()));
  if (!std::isfinite(percent) && !std::isfinite(run.headline() - other.headline())) {
    return "not comparable with " + than;
  }
  const std::optional<Interval> difference = headline_difference(run, other);
  if (difference) {
    than = fmt::format("{} ({}; paired difference {}{})", called, plain_number(other.headline()),
                       interval_text(*difference), difference->excludes_zero() ? "" : ", which includes zero");
    if (!difference->excludes_zero()) {
      return "not significantly different from " + than;
    }
  } else if (run.headline() == other.headline() || std::abs(percent) < 0.05) {
    return "the same as " + than;
  }
  const char* direction = run.headline() < other.headline() ? "lower" : "higher";
  if (!std::isfinite(percent)) {
    return fmt::format("{} than {}", direction, than);  // the other figure is 0
  }
  const bool tiny = std::abs(percent) < 0.05;
  return fmt::format("{} {} than {}", tiny ? "less than 0.1%" : fmt::format("{:.1f}%", std::abs(percent)), direction,
                     than);
}

std::string seeds_caveat(const std::vector<ComparedRun>& runs, std::string_view what) {
  if (runs.size() < 2) {
    return "";
  }
  const auto fewer = [](const ComparedRun& a, const ComparedRun& b) { return a.trained.size() < b.trained.size(); };
  const auto [fewest, most] = std::ranges::minmax_element(runs, fewer);
  if (fewest->trained.size() < 2) {
    return fmt::format(
        " {} trained once: without an interval, a difference may be chance.",
        most->trained.size() < 2 ? fmt::format("Each {} was", what) : fmt::format("Some {}s were", what));
  }
  return fmt::format(" Each {} was trained with {}{} seeds; figures are means, brackets 95% intervals.{}", what,
                     fewest->trained.size() < most->trained.size() ? "at least " : "", fewest->trained.size(),
                     two_seeds_caveat(fewest->trained.size()));
}

std::string cost_comparison(const ComparedRun& run, const ComparedRun& other) {
  constexpr double kSame = 0.005;  // relative difference in cost that is too small to report
  std::vector<std::string> ratios, same;
  for (const Cost& cost : costs_of(run, other)) {
    const double ratio = cost.own / cost.other;
    if (std::isfinite(ratio) && std::abs(ratio - 1.0) < kSame) {
      same.emplace_back(cost.name);
    } else if (std::isfinite(ratio)) {
      ratios.push_back(fmt::format("{:.{}f} times the {}", ratio, ratio < 0.1 ? 3 : ratio < 9.95 ? 2 : 0, cost.name));
    }
  }
  if (ratios.empty()) {
    return fmt::format("{} costs as much as {}.", run.name, other.name);
  }
  return fmt::format("{} takes {} of {}{}.", run.name, enumerated(ratios), other.name,
                     same.empty() ? "" : "; no difference in " + enumerated(same));
}

Conclusion conclude_sweep(const std::vector<ComparedRun>& runs) {
  if (runs.empty() || !runs.front().has_figure()) {
    return {"No run reached a finite figure."};
  }
  const ComparedRun& best = runs.front();
  const tasks::FigureKind& kind = best.headline_kind();
  const std::vector<double> values = best.over_seeds(kind.name);
  Conclusion points = {fmt::format("{} has the best{} validation {} of {} combinations, {}.", best.name,
                                   values.size() < 2 ? "" : " mean", kind.words, runs.size(), with_deviation(values))};
  if (runs.size() > 1 && runs[1].has_figure()) {
    points.push_back(fmt::format("{} follows with {}, {}.{}", runs[1].name, plain_number(runs[1].headline()),
                                 headline_comparison(runs[1], best, "the best"), seeds_caveat(runs, "combination")));
  }
  return points;
}

namespace {

// Training time, speed and memory; empty if unknown.
std::string effort_sentence(const ComparedRun& run) {
  const bool finished = run.result().steps >= run.config.train.steps;
  const double seconds = run.mean_seconds();
  const double speed = run.tokens_per_second();
  if (!(seconds > 0.0) || !(speed > 0.0)) {
    return "";
  }
  const double peak = run.peak_memory_bytes();
  return fmt::format("{} {} of training at {} tokens per second{}.", finished ? "It took" : "So far, it took",
                     format_duration(seconds), short_number(speed),
                     peak > 0.0 ? " and at most " + format_bytes(peak) + " of memory" : "");
}

// The best validation if it is not the last one; else empty. Validations of another part of the data do not count.
std::string earlier_best(const ComparedRun& run) {
  const tasks::FigureKind& kind = run.headline_kind();
  double best = tasks::figure(run.result().figures(), kind.name);
  std::string text;
  const std::vector<train::ValidationPoint>& points = run.result().validation;
  for (const train::ValidationPoint& point : points) {
    const double figure = tasks::figure(point.figures, kind.name);
    if (point.predictions == points.back().predictions && is_better(kind, figure, best)) {
      best = figure;
      text = fmt::format("Its best value was {1}, at step {0}.", point.step, plain_number(figure));
    }
  }
  return text;
}

Conclusion conclude_single(const ComparedRun& run) {
  const tasks::FigureKind& kind = run.headline_kind();
  const std::vector<double> values = run.over_seeds(kind.name);
  const std::int64_t done = run.result().steps, steps = run.config.train.steps;
  const std::string after =
      done < steps ? fmt::format("{} of {} steps", done, steps) : counted(static_cast<std::size_t>(done), "step");
  if (!run.trained.front().diverged.empty()) {
    return {fmt::format("{} diverged.", run.name)};
  }
  Conclusion points;
  if (run.result().validation.empty()) {
    points.push_back(fmt::format("{} has not been validated yet, after {}.", run.name, after));
  } else {
    const std::string seeds = values.size() < 2 ? "" : fmt::format(" (mean and deviation of {} seeds)", values.size());
    const std::string best = run.result().best_step
                                 ? fmt::format(", the best of its validations, at step {},", *run.result().best_step)
                                 : "";
    points.push_back(fmt::format("{} has a validation {} of {}{}{} after {}.", run.name, kind.words,
                                 with_deviation(values), seeds, best, after));
  }
  for (const std::string& more : {earlier_best(run), effort_sentence(run)}) {
    if (!more.empty()) {
      points.push_back(more);
    }
  }
  return points;
}

// Returns " a and b have no finite figure to compare."; empty if every run has one.
std::string without_figure(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names;
  for (const ComparedRun& run : runs) {
    if (!run.has_figure()) {
      names.push_back(run.name);
    }
  }
  return names.empty() ? ""
                       : fmt::format(" {} no finite figure to compare.",
                                     enumerated(names) + (names.size() == 1 ? " has" : " have"));
}

}  // namespace

Conclusion conclude(const std::vector<ComparedRun>& runs) {
  if (runs.empty()) {
    return {"Nothing was compared."};
  }
  if (runs.size() == 1) {
    return conclude_single(runs.front());
  }
  const ComparedRun& first = runs.front();
  const tasks::FigureKind& kind = first.headline_kind();
  const auto better = [](const ComparedRun& a, const ComparedRun& b) { return a.better_than(b); };
  const ComparedRun& best = *std::ranges::min_element(runs, better);
  if (!best.has_figure()) {
    return {"No model reached a finite figure."};
  }
  const std::vector<double> values = best.over_seeds(kind.name);
  Conclusion points = {fmt::format("{} has the best{} validation {}, {}.{}", best.name,
                                   values.size() < 2 ? "" : " mean", kind.words, with_deviation(values),
                                   without_figure(runs))};
  // Compare the best run with the first one or, if the first is best, with the runner-up.
  const ComparedRun& other = &best == &first ? *std::min_element(runs.begin() + 1, runs.end(), better) : best;
  if (!first.has_figure() || !other.has_figure()) {
    points.back() += seeds_caveat(runs);
    return points;
  }
  points.push_back(&best == &first ? fmt::format("{} follows with {}, {}.", other.name, plain_number(other.headline()),
                                                 headline_comparison(other, first))
                                   : fmt::format("That is {}.", headline_comparison(best, first)));
  points.back() += seeds_caveat(runs);
  points.push_back(cost_comparison(other, first));
  return points;
}

void add_speedups(CompareResult& result) {
  if (result.kind != Kind::comparison || !result.scaling.empty()) {
    return;
  }
  result.speedups = effective_speedups(result.runs);
  if (!result.speedups.reason.empty()) {
    result.notes.push_back(result.speedups.reason);
  }
  for (std::string& sentence : conclude_speedups(result.runs, result.speedups)) {
    result.conclusion.push_back(std::move(sentence));
  }
}

namespace {

// Returns the number of seeds that every model of the families has at least.
std::size_t fewest_seeds(const Scaling& scaling) {
  std::size_t seeds = SIZE_MAX;
  for (const ScaledFamily& family : scaling) {
    for (const ScaledModel& model : family.models) {
      seeds = std::min(seeds, model.losses.size());
    }
  }
  return seeds;
}

constexpr const char* kShowsNothing = "; the interval includes 1, so no difference is shown";

// Returns "For a validation loss of 4.021, dense needs 1.32 [1.21, 1.44] times the compute of dcmha."
std::string sentence_of(const ScaledFamily& family, const ScaledFamily& first) {
  const Saving& saving = *family.saving;
  return fmt::format("For a validation loss of {}, {} needs {} times the compute of {}{}{}",
                     format_decimal(saving.loss, 3), first.name, saving_text(saving), family.name,
                     saving.includes_one() ? kShowsNothing : "",
                     saving.extrapolated ? "; this is extrapolated, because no loss is reached by both." : ".");
}

// Returns "Trained for that loss at the measured speeds, dense takes 1.10 [1.03, 1.18] times as long as dcmha."
std::string speed_sentence(const ScaledFamily& family, const ScaledFamily& first) {
  return fmt::format("Trained for that loss at the measured speeds, {} takes {} times as long as {}{}.", first.name,
                     saving_text(*family.speedup), family.name, family.speedup->includes_one() ? kShowsNothing : "");
}

// Returns "To match the models of dcmha, dense needs 1.25 (small) and 1.40 (large, extrapolated) times their compute."
std::string models_sentence(const ScaledFamily& family, const ScaledFamily& first) {
  std::vector<std::string> models;
  for (const ScaledModel& model : family.models) {
    if (model.saving) {
      models.push_back(fmt::format("{} ({}{})", saving_text(*model.saving), model.name,
                                   model.saving->extrapolated ? ", extrapolated" : ""));
    }
  }
  return models.empty() ? ""
                        : fmt::format("To match the models of {}, {} needs {} times their compute.", family.name,
                                      first.name, enumerated(models));
}

// Returns "The losses are fitted by 27.1 FLOPs^-0.061 (dense, 3 sizes, at most 0.3% off) and ..."
std::string lines_sentence(const Scaling& scaling) {
  std::vector<std::string> lines;
  for (const ScaledFamily& family : scaling) {
    if (family.unfitted.empty()) {
      const std::string fit = family.models.size() < 3 ? "through two sizes"
                                                       : fmt::format("{} sizes, at most {:.1f}% off",
                                                                     family.models.size(), 100.0 * family.residual);
      lines.push_back(
          fmt::format("{:.3g} FLOPs^-{:.3g} ({}, {})", family.law.coefficient, family.law.exponent, family.name, fit));
    }
  }
  return lines.empty() ? "" : fmt::format("The losses are fitted by {}.", enumerated(lines));
}

std::string seeds_sentence(std::size_t seeds) {
  if (seeds < 2) {
    return "Each model was trained once: without an interval, a difference may be chance.";
  }
  return fmt::format(
      "Each model was trained with {} seeds; brackets are 95% intervals over the seeds, not over other sizes.{}", seeds,
      two_seeds_caveat(seeds));
}

}  // namespace

std::string saving_text(const Saving& saving) {
  const auto factor = [](double ratio) {
    return ratio < 99.5 ? format_decimal(ratio, 2) : std::isfinite(ratio) ? fmt::format("{:.3g}", ratio) : kUnknown;
  };
  return saving.low ? fmt::format("{} [{}, {}]", factor(saving.ratio), factor(*saving.low), factor(*saving.high))
                    : factor(saving.ratio);
}

Conclusion conclude_scaling(const Scaling& scaling) {
  Conclusion points;
  for (const ScaledFamily& family : scaling) {
    if (family.saving) {
      points.push_back(sentence_of(family, scaling.front()));
      if (family.speedup) {
        points.push_back(speed_sentence(family, scaling.front()));
      }
    }
  }
  for (const ScaledFamily& family : scaling) {
    if (!family.unfitted.empty()) {
      points.push_back(family.unfitted);
    } else if (std::string models = models_sentence(family, scaling.front()); !models.empty()) {
      points.push_back(std::move(models));
    }
  }
  if (std::string lines = lines_sentence(scaling); !lines.empty()) {
    points.push_back(std::move(lines));
    points.push_back(seeds_sentence(fewest_seeds(scaling)));
  }
  return points;
}

}  // namespace headroom::compare
