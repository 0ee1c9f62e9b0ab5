#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "foundation/core/text/format.h"
#include "statistics.h"
#include "tools/compare/report/markup.h"

namespace headroom::compare {
namespace {

struct Cost {
  const char* name;
  double mine, others;
};

std::vector<Cost> costs_of(const ComparedRun& run, const ComparedRun& other) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  return {{"attention MACs", number(run.attention_macs), number(other.attention_macs)},
          {"attention memory", number(run.attention_memory), number(other.attention_memory)},
          {"training time", run.mean_of(&train::TrainResult::seconds), other.mean_of(&train::TrainResult::seconds)},
          {"peak memory", run.peak_memory_bytes(), other.peak_memory_bytes()},
          {"parameters", number(run.result().parameters), number(other.result().parameters)}};
}

}  // namespace

std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other) {
  const std::string& figure = tasks::headline(run.task().figures()).name;
  return paired_difference(run.over_seeds(figure), other.over_seeds(figure));
}

std::string headline_against(const ComparedRun& run, const ComparedRun& other) {
  return headline_against(run, other, other.name);
}

std::string headline_against(const ComparedRun& run, const ComparedRun& other, std::string_view called) {
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
    return fmt::format("{} than {}", direction, than);  // which is 0
  }
  const bool tiny = std::abs(percent) < 0.05;
  return fmt::format("{} {} than {}", tiny ? "less than 0.1%" : fmt::format("{:.1f}%", std::abs(percent)), direction,
                     than);
}

std::string_view caution_of_seeds(std::size_t seeds) {
  return seeds == 2 ? " Two seeds can hardly show anything: their interval reaches 12.7 standard errors to each side, "
                      "that of three 4.3."
                    : "";
}

std::string caution(const std::vector<ComparedRun>& runs, std::string_view what) {
  if (runs.size() < 2) {
    return "";
  }
  const auto fewer = [](const ComparedRun& a, const ComparedRun& b) { return a.trained.size() < b.trained.size(); };
  const auto [fewest, most] = std::minmax_element(runs.begin(), runs.end(), fewer);
  if (fewest->trained.size() < 2) {
    return fmt::format(
        " {} trained once: without an interval no difference is shown to be real.",
        most->trained.size() < 2 ? fmt::format("Each {} was", what) : fmt::format("Some {}s were", what));
  }
  return fmt::format(" Each {} was trained with {}{} seeds: figures are means, brackets 95% intervals.{}", what,
                     fewest->trained.size() < most->trained.size() ? "at least " : "", fewest->trained.size(),
                     caution_of_seeds(fewest->trained.size()));
}

std::string costs_against(const ComparedRun& run, const ComparedRun& other) {
  constexpr double kSame = 0.005;  // of the other's
  std::vector<std::string> ratios, same;
  for (const Cost& cost : costs_of(run, other)) {
    const double ratio = cost.mine / cost.others;
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
    return {"None of the runs came to a finite figure."};
  }
  const ComparedRun& best = runs.front();
  const tasks::FigureKind& kind = tasks::headline(best.task().figures());
  const std::vector<double> values = best.over_seeds(kind.name);
  Conclusion points = {fmt::format("{} has the best{} validation {} of {} combinations, {}.", best.name,
                                   values.size() < 2 ? "" : " mean", kind.words, runs.size(),
                                   with_deviation(mean(values), sample_deviation(values)))};
  if (runs.size() > 1 && runs[1].has_figure()) {
    points.push_back(fmt::format("{} follows with {}, {}.{}", runs[1].name, plain_number(runs[1].headline()),
                                 headline_against(runs[1], best, "the best"), caution(runs, "combination")));
  }
  return points;
}

namespace {

// What it took; empty where that is not known.
std::string spent(const ComparedRun& run) {
  const bool finished = run.result().steps >= run.config.train.steps;
  const double seconds = run.mean_of(&train::TrainResult::seconds);
  const double speed = run.mean_of(&train::TrainResult::tokens_per_second);
  if (!(seconds > 0.0) || !(speed > 0.0)) {
    return "";
  }
  const double peak = run.peak_memory_bytes();
  return fmt::format("{} {} of training at {} tokens a second{}.", finished ? "It took" : "So far it took",
                     format_duration(seconds), short_number(speed),
                     peak > 0.0 ? " and at most " + format_bytes(peak) + " of memory" : "");
}

// The best of the validations where the last is not; empty where it is.
std::string was_better(const ComparedRun& run) {
  const tasks::FigureKind& kind = tasks::headline(run.task().figures());
  const bool higher = kind.better == tasks::Better::higher;
  double best = tasks::figure(run.result().figures(), kind.name);
  std::string text;
  for (const train::ValidationPoint& point : run.result().validation) {
    const double figure = tasks::figure(point.figures, kind.name);
    if (higher ? figure > best : figure < best) {
      best = figure;
      text = fmt::format("It was best at step {}: {}.", point.step, plain_number(figure));
    }
  }
  return text;
}

Conclusion conclude_single(const ComparedRun& run) {
  const tasks::FigureKind& kind = tasks::headline(run.task().figures());
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
    points.push_back(fmt::format("{} has a validation {} of {}{} after {}.", run.name, kind.words,
                                 with_deviation(mean(values), sample_deviation(values)), seeds, after));
  }
  for (const std::string& more : {was_better(run), spent(run)}) {
    if (!more.empty()) {
      points.push_back(more);
    }
  }
  return points;
}

// " a and b have no finite figure to compare."; empty where all have one.
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
  const tasks::FigureKind& kind = tasks::headline(first.task().figures());
  const auto better = [&](const ComparedRun& a, const ComparedRun& b) {
    if (!a.has_figure() || !b.has_figure()) {
      return a.has_figure() && !b.has_figure();
    }
    return kind.better == tasks::Better::higher ? a.headline() > b.headline() : a.headline() < b.headline();
  };
  const ComparedRun& best = *std::min_element(runs.begin(), runs.end(), better);
  if (!best.has_figure()) {
    return {"None of the models came to a finite figure."};
  }
  const std::vector<double> values = best.over_seeds(kind.name);
  Conclusion points = {fmt::format("{} has the best{} validation {}, {}.{}", best.name,
                                   values.size() < 2 ? "" : " mean", kind.words,
                                   with_deviation(mean(values), sample_deviation(values)), without_figure(runs))};
  // The pair that is weighed: the best against the first or, where that is the same run, the next best.
  const ComparedRun& other = &best == &first ? *std::min_element(runs.begin() + 1, runs.end(), better) : best;
  if (!first.has_figure() || !other.has_figure()) {
    points.back() += caution(runs);
    return points;
  }
  points.push_back(&best == &first ? fmt::format("{} follows with {}, {}.", other.name, plain_number(other.headline()),
                                                 headline_against(other, first))
                                   : fmt::format("That is {}.", headline_against(best, first)));
  points.back() += caution(runs);
  points.push_back(costs_against(other, first));
  return points;
}

}  // namespace headroom::compare
