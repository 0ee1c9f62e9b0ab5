#include "result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/text/text.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "scaling.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

struct ComparedCost {
  const char* name;
  double own, other;
};

// Returns the costs; costs that do not depend on the machine come first.
std::vector<ComparedCost> costs_of(const ComparedRun& run, const ComparedRun& other) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  return {{"attention MACs", number(run.attention_macs), number(other.attention_macs)},
          {"attention memory", number(run.attention_memory), number(other.attention_memory)},
          {"MACs of a training step", run.step_macs(), other.step_macs()},
          {"parameters", number(run.result().parameters), number(other.result().parameters)},
          {"training time", run.mean_seconds(), other.mean_seconds()},
          {"peak memory", run.peak_memory_bytes(), other.peak_memory_bytes()}};
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
  constexpr double kSame = 0.0005;  // relative difference that is too small to report without an interval
  const std::string than = fmt::format("{} ({}", called.empty() ? other.name : called, plain_number(other.headline()));
  const double difference = run.headline() - other.headline();
  if (!std::isfinite(difference)) {
    return fmt::format("not comparable with {})", than);
  }
  const std::optional<Interval> paired = headline_difference(run, other);
  if (paired && !paired->excludes_zero()) {
    return fmt::format("not significantly different from {}; paired difference {}, which includes zero)", than,
                       interval_text(*paired));
  }
  if (!paired && std::abs(difference) <= kSame * std::abs(other.headline())) {
    return fmt::format("the same as {})", than);
  }
  const bool below = difference < 0.0;
  return fmt::format("{} {} {})",
                     !paired ? difference_text(std::abs(difference))
                     : below ? interval_text({.mean = -paired->mean, .low = -paired->high, .high = -paired->low})
                             : interval_text(*paired),
                     below ? "below" : "above", than);
}

namespace {

// Returns "0.0005" or, of several values, "0.0005 to 0.001".
template <class Value>
std::string range_text(const std::vector<ComparedRun>& runs, const Value& value) {
  const auto text = [](double number) { return number < 1.0 ? fmt::format("{:.3g}", number) : short_number(number); };
  const auto [low, high] = std::ranges::minmax(transformed(runs, value));
  return text(low) == text(high) ? text(low) : fmt::format("{} to {}", text(low), text(high));
}

}  // namespace

std::string conditions_of(const std::vector<ComparedRun>& runs) {
  const ComparedRun& first = runs.front();
  const bool chosen =
      std::ranges::any_of(first.values, [](const auto& value) { return value.first == "train.learning_rate"; });
  const auto epochs = [](const ComparedRun& run) { return run.result().epochs; };
  std::vector<std::string> parts = {
      fmt::format("learning rate {} ({})",
                  range_text(runs, [](const ComparedRun& run) { return run.config.train.learning_rate; }),
                  !chosen                ? "not tuned"
                  : first.tuning.empty() ? "varied"
                                         : "tuned"),
      range_text(runs, [](const ComparedRun& run) {
        return run.tokens() / std::max(1.0, static_cast<double>(run.result().parameters));
      }) + " tokens per parameter"};
  if (std::ranges::max(transformed(runs, epochs)) > 1.0) {
    parts.push_back(range_text(runs, epochs) + " epochs");
  }
  return enumerated(parts);
}

std::string basis_of(const std::vector<ComparedRun>& runs) {
  const auto [fewest, most] =
      std::ranges::minmax(transformed(runs, [](const auto& run) { return run.trained.size(); }));
  return fmt::format(
      "Measured with {}, {}: {}.{}", conditions_of(runs),
      most == 1        ? "one seed each"
      : fewest == most ? fmt::format("{} seeds each", most)
                       : fmt::format("{} to {} seeds", fewest, most),
      fewest == 1 ? "without an interval, a difference may be chance" : "figures are means, brackets 95% intervals",
      two_seeds_caveat(fewest));
}

std::string cost_comparison(const ComparedRun& run, const ComparedRun& other) {
  constexpr double kSame = 0.005;  // relative difference in cost that is too small to report
  std::vector<std::string> ratios, same;
  for (const ComparedCost& cost : costs_of(run, other)) {
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
  std::string headline = fmt::format("{} has the best{} validation {} of {} combinations, {}", best.name,
                                     values.size() < 2 ? "" : " mean", kind.words, runs.size(), with_deviation(values));
  if (runs.size() < 2 || !runs[1].has_figure()) {
    return {headline + "."};
  }
  return {fmt::format("{}, {}.", headline, headline_comparison(best, runs[1])), basis_of(runs)};
}

namespace {

// Returns the best validation unless it is the last one; else empty. Ignores validations of another part of the data.
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

// Returns "It was trained on a.txt and validated on b.txt, with learning rate 0.001 (not tuned) and ..."
std::string training_sentence(const ComparedRun& run) {
  return fmt::format("It was trained on {} and validated on {}, with {}.",
                     data::corpus_name(run.config.data, data::Split::train),
                     data::corpus_name(run.config.data, data::Split::validation), conditions_of({run}));
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
  if (std::string earlier = earlier_best(run); !earlier.empty()) {
    points.push_back(std::move(earlier));
  }
  points.push_back(training_sentence(run));
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
  // Compare the best run with the first one or, if the first is best, with the runner-up.
  const bool leads = &best == &first;
  const ComparedRun& other = leads ? *std::min_element(runs.begin() + 1, runs.end(), better) : first;
  const bool comparable = other.has_figure();
  const std::vector<double> values = best.over_seeds(kind.name);
  Conclusion points = {fmt::format("{} has the best{} validation {}, {}{}.{}", best.name,
                                   values.size() < 2 ? "" : " mean", kind.words, with_deviation(values),
                                   comparable ? ", " + headline_comparison(best, other) : "", without_figure(runs)),
                       basis_of(runs)};
  if (comparable) {
    points.push_back(cost_comparison(leads ? other : best, first));
  }
  return points;
}

void add_speedups(CompareResult& result) {
  // If models are judged by another figure than the loss, the time to the same loss says little.
  if (result.kind != Kind::comparison || !result.scaling.empty() || result.runs.empty() ||
      result.runs.front().headline_kind().is_bounded()) {
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
    }
  }
  if (std::string lines = lines_sentence(scaling); !lines.empty()) {
    points.push_back(std::move(lines));
  }
  return points;
}

}  // namespace headroom::compare
