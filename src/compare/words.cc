#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "markup.h"
#include "statistics.h"

namespace headroom::compare {
namespace {

std::string times(double mine, double others, const char* what, const char* same) {
  const double ratio = mine / others;
  if (!std::isfinite(ratio)) {
    return "";
  }
  if (std::abs(ratio - 1.0) < 0.005) {
    return same;
  }
  return fmt::format("{:.{}f} times the {}", ratio, ratio < 0.1 ? 3 : ratio < 9.95 ? 2 : 0, what);
}

// "; the rest: a with 7.58 and b with 8.19", or only their range when there are many.
std::string the_rest(const std::vector<ComparedRun>& runs, const std::array<const ComparedRun*, 2>& named) {
  constexpr std::size_t kMany = 4;
  std::vector<std::string> texts;
  std::vector<double> values;
  for (const ComparedRun& run : runs) {
    if (&run != named[0] && &run != named[1] && run.has_figure()) {
      texts.push_back(fmt::format("{} with {}", run.name, plain_number(run.headline())));
      values.push_back(run.headline());
    }
  }
  if (texts.empty()) {
    return "";
  }
  if (texts.size() < kMany) {
    return "; the rest: " + enumerated(texts);
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("; the other {} lie between {} and {}", texts.size(), plain_number(*low), plain_number(*high));
}

}  // namespace

std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other) {
  const std::string& figure = tasks::headline(run.task().figures()).name;
  return paired_difference(run.over_seeds(figure), other.over_seeds(figure));
}

std::string headline_against(const ComparedRun& run, const ComparedRun& other) {
  const double percent = 100.0 * (run.headline() / other.headline() - 1.0);
  std::string than = fmt::format("{} ({})", other.name, plain_number(other.headline()));
  if (!std::isfinite(percent) && !std::isfinite(run.headline() - other.headline())) {
    return "not comparable with " + than;
  }
  const std::optional<Interval> difference = headline_difference(run, other);
  if (difference) {
    than = fmt::format("{} ({}; paired difference {}{})", other.name, plain_number(other.headline()),
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

std::string caution(const std::vector<ComparedRun>& runs, std::string_view what) {
  if (runs.size() < 2) {
    return "";
  }
  const auto fewer = [](const ComparedRun& a, const ComparedRun& b) { return a.trained.size() < b.trained.size(); };
  const auto [fewest, most] = std::minmax_element(runs.begin(), runs.end(), fewer);
  if (fewest->trained.size() < 2) {
    return fmt::format(
        " {} trained once: a difference of a few percent may be chance.",
        most->trained.size() < 2 ? fmt::format("Each {} was", what) : fmt::format("Some {}s were", what));
  }
  const char* hardly = fewest->trained.size() == 2
                           ? " Two seeds can hardly show anything: their interval reaches 12.7 standard errors to "
                             "each side, that of three 4.3."
                           : "";
  return fmt::format(" Each {} was trained with {}{} seeds: figures are means, brackets 95% intervals.{}", what,
                     fewest->trained.size() < most->trained.size() ? "at least " : "", fewest->trained.size(), hardly);
}

std::string costs_against(const ComparedRun& run, const ComparedRun& other) {
  std::vector<std::string> costs;
  const auto add = [&](double mine, double others, const char* what, const char* same) {
    const std::string text = times(mine, others, what, same);
    if (!text.empty()) {
      costs.push_back(text);
    }
  };
  add(static_cast<double>(run.attention_macs), static_cast<double>(other.attention_macs), "attention MACs",
      "the same attention MACs");
  add(static_cast<double>(run.attention_memory), static_cast<double>(other.attention_memory), "attention memory",
      "the same attention memory");
  add(run.mean_of(&train::TrainResult::seconds), other.mean_of(&train::TrainResult::seconds), "training time",
      "the same training time");
  add(run.peak_memory_bytes(), other.peak_memory_bytes(), "peak memory", "the same peak memory");
  add(static_cast<double>(run.result().parameters), static_cast<double>(other.result().parameters), "parameters",
      "as many parameters");
  return enumerated(costs);
}

std::string conclude_sweep(const std::vector<ComparedRun>& runs) {
  if (runs.empty() || !runs.front().has_figure()) {
    return "None of the runs came to a finite figure.";
  }
  const ComparedRun& best = runs.front();
  const tasks::FigureKind& kind = tasks::headline(best.task().figures());
  const std::vector<double> values = best.over_seeds(kind.name);
  std::string text =
      fmt::format("{} has the best{} validation {} of {} combinations, {}", best.name, values.size() < 2 ? "" : " mean",
                  kind.words, runs.size(), with_deviation(mean(values), sample_deviation(values)));
  if (runs.size() > 1 && runs[1].has_figure()) {
    text += fmt::format("; {} follows, {}", runs[1].name, headline_against(runs[1], best));
  }
  return text + "." + caution(runs, "combination");
}

namespace {

std::string conclude_single(const ComparedRun& run) {
  const tasks::FigureKind& kind = tasks::headline(run.task().figures());
  const std::vector<double> values = run.over_seeds(kind.name);
  const std::string steps = counted(static_cast<std::size_t>(run.result().steps), "step");
  if (run.result().validation.empty()) {
    return run.trained.front().diverged.empty()
               ? fmt::format("{} has not been validated yet, after {}.", run.name, steps)
               : fmt::format("{} diverged.", run.name);
  }
  const std::string seeds = values.size() < 2 ? "" : fmt::format(" (mean and deviation of {} seeds)", values.size());
  return fmt::format("{} has a validation {} of {}{} after {}.", run.name, kind.words,
                     with_deviation(mean(values), sample_deviation(values)), seeds, steps);
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

std::string conclude(const std::vector<ComparedRun>& runs) {
  if (runs.empty()) {
    return "Nothing was compared.";
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
    return "None of the models came to a finite figure.";
  }
  const std::vector<double> values = best.over_seeds(kind.name);
  // The pair that the sentence weighs: the best against the first or, where that is the same run, the next best.
  const ComparedRun& other = &best == &first ? *std::min_element(runs.begin() + 1, runs.end(), better) : best;
  std::string text = fmt::format("{} has the best{} validation {}, {}", best.name, values.size() < 2 ? "" : " mean",
                                 kind.words, with_deviation(mean(values), sample_deviation(values)));
  if (&best == &first && !other.has_figure()) {
    return text + "." + without_figure(runs) + caution(runs);
  }
  if (&best == &first) {
    text += fmt::format("; {} follows with {}, {}, at {}", other.name, plain_number(other.headline()),
                        headline_against(other, first), costs_against(other, first));
  } else if (first.has_figure()) {
    text += fmt::format(", {}, at {}", headline_against(best, first), costs_against(best, first));
  }
  return text + the_rest(runs, {&first, &other}) + "." + without_figure(runs) + caution(runs);
}

}  // namespace headroom::compare
