// Converts trained runs to a result for display.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "result.h"
#include "scaling.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/run/execution.h"
#include "tools/compare/statistics.h"
#include "training/cost/report.h"

namespace headroom::compare {

const tasks::Task& ComparedRun::task() const {
  return tasks::task_for(config, "compare: " + name);
}

std::vector<double> ComparedRun::over_seeds(const std::string& figure) const {
  return transformed(trained, [&](const TrainedRun& run) { return tasks::figure(run.result.figures(), figure); });
}

std::vector<double> ComparedRun::tests_over_seeds(const std::string& figure) const {
  return transformed(trained, [&](const TrainedRun& run) { return tasks::figure(run.test.figures, figure); });
}

double ComparedRun::headline() const {
  return mean(over_seeds(headline_kind().name));
}

bool ComparedRun::has_figure() const {
  return std::isfinite(headline());
}

bool ComparedRun::better_than(const ComparedRun& other) const {
  return has_figure() && (!other.has_figure() || is_better(headline_kind(), headline(), other.headline()));
}

double ComparedRun::mean_seconds() const {
  return mean(transformed(trained, [](const TrainedRun& run) { return run.result.seconds; }));
}

double ComparedRun::core_share() const {
  return mean(transformed(trained, [](const TrainedRun& run) { return run.result.core_share; }));
}

double ComparedRun::tokens() const {
  const std::vector<train::TrainingPoint>& logged = trained.front().log.training;
  return static_cast<double>(logged.empty() ? result().steps * config.whole_sequences() * config.model.context_length
                                            : logged.back().tokens);
}

double ComparedRun::tokens_per_second() const {
  double tokens = 0.0, seconds = 0.0;
  for (const TrainedRun& run : trained) {
    const std::vector<train::TrainingPoint>& logged = run.log.training;
    tokens +=
        logged.empty() ? run.result.tokens_per_second * run.result.seconds : static_cast<double>(logged.back().tokens);
    seconds += run.result.seconds;
  }
  return seconds > 0.0 ? tokens / seconds : 0.0;
}

void ComparedRun::count_costs() {
  const Json costs = cost::cost_json(name, config);
  attention_macs = costs.at("attention_macs").get<std::int64_t>();
  attention_memory = costs.at("attention_memory").get<std::int64_t>();
  executed = costs.at("executed");
}

double ComparedRun::peak_memory_bytes() const {
  return static_cast<double>(max_over(
      trained, [](const TrainedRun& run) { return run.result.peak_memory_bytes; }, std::int64_t{0}));
}

namespace {

// Returns "smallest" or "largest" if `best` is the extreme of the values tried; empty if it is not, or if they are not
// numeric.
std::string edge_of(const std::string& best, const std::vector<std::string>& tried) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const std::string& text : tried) {
    const std::optional<double> value = as_number(text);
    if (!value) {
      return "";
    }
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  const double chosen = as_number(best).value_or(0.0);
  return !(low < high) || (chosen != low && chosen != high) ? "" : chosen == low ? "smallest" : "largest";
}

// Warns if a best value is the smallest or largest one tried: one sentence for all runs with the same best value,
// without names if these are all runs.
void add_edge_notes(const CompareResult& result, std::vector<std::string>& sentences) {
  const auto counts =
      static_cast<std::ptrdiff_t>(result.kind == Kind::sweep ? 1 : result.runs.size());  // sweep: only the best run
  for (std::size_t key = 0; key < result.variations.size(); ++key) {
    std::map<std::string, std::vector<std::string>> at_edge;  // names by value
    for (auto run = result.runs.begin(); run != result.runs.begin() + counts; ++run) {
      if (run->has_figure() && key < run->values.size() &&
          !edge_of(run->values[key].second, result.variations[key].values).empty()) {
        at_edge[run->values[key].second].push_back(run->name);
      }
    }
    for (const auto& [value, names] : at_edge) {
      const bool all = names.size() == static_cast<std::size_t>(counts);
      sentences.push_back(fmt::format("{} best {}, {}, is the {} value tried. A better one may lie beyond it.",
                                      all ? "The" : enumerated(names) + ": the", result.variations[key].key, value,
                                      edge_of(value, result.variations[key].values)));
    }
  }
}

// Describes the run with the largest standard error of its loss; empty if all errors are small enough.
std::string uncertainty_note(const std::vector<ComparedRun>& runs) {
  const ComparedRun* worst = nullptr;
  const auto error_of = [](const ComparedRun& run) {
    return tasks::figure(run.result().figures(), std::string(tasks::kLossError));
  };
  for (const ComparedRun& run : runs) {
    if (std::isfinite(error_of(run)) && (worst == nullptr || error_of(run) > error_of(*worst))) {
      worst = &run;
    }
  }
  const std::string uncertain = worst == nullptr ? "" : tasks::uncertainty(worst->result().figures());
  return uncertain.empty() ? ""
                           : fmt::format(
                                 "The validation data is small: {} ({}). On other text, models with similar losses may "
                                 "rank differently, whatever their seeds.",
                                 uncertain, worst->name);
}

// Returns one entry per model with a finished run; its seeds end before the first unfinished one.
std::vector<ComparedRun> summarise(const Plan& plan, Runs& runs) {
  std::vector<ComparedRun> lines;
  for (const PlannedModel& model : plan.models) {
    if (model.choices.empty()) {
      continue;
    }
    const std::size_t best = runs.best_choice(model);
    const PlannedRun& chosen = model.choices[best];
    ComparedRun line;
    line.tuning_seed = chosen.config.train.seed;
    const TrainedRun* const selected = runs.find(chosen);
    const bool failed = selected != nullptr && !selected->diverged.empty();  // then it has no other runs
    const std::int64_t first = failed ? 0 : plan.first_index();
    for (std::int64_t index = first; index < first + plan.seeds; ++index) {
      const TrainedRun* trained = runs.find(with_seed(chosen, index));
      if (trained == nullptr) {
        break;
      }
      line.trained.push_back(*trained);
    }
    if (line.trained.empty()) {
      continue;
    }
    line.name = model.name;
    line.family = model.family;
    line.folder = with_seed(chosen, first).folder;
    line.config = train::read_run_config(line.folder);
    line.values = chosen.values;
    for (std::size_t i = 0; model.choices.size() > 1 && i < model.choices.size(); ++i) {
      if (runs.find(model.choices[i]) != nullptr) {
        const double figure = runs.headline(model.choices[i]);
        line.tuning.push_back({model.choices[i].values, figure, i == best && std::isfinite(figure)});
      }
    }
    line.count_costs();
    lines.push_back(std::move(line));
  }
  return lines;
}

Conclusion conclusion_of(const CompareResult& result) {
  if (result.kind == Kind::sweep) {
    return conclude_sweep(result.runs);
  }
  if (!result.scaling.empty()) {
    Conclusion points = conclude_scaling(result.scaling);
    points.push_back(basis_of(result.runs));
    return points;
  }
  constexpr std::size_t kDemoRuns = 3;
  const bool whole = std::ranges::all_of(result.runs, &ComparedRun::has_figure);
  return result.kind == Kind::demo && result.runs.size() == kDemoRuns && whole ? conclude_demo(result.runs)
                                                                               : conclude(result.runs);
}

constexpr double kUnequal = 1.25;    // factor between shares or speeds that is worth a note
constexpr double kLongEnough = 1.0;  // seconds of training whose speed can be judged

// Returns the speed after the first tenth of a run, without the first line, which includes the slow first steps, as a
// multiple of the speed in that tenth; 1 if the run is too short to tell.
double change_of_speed(const std::vector<train::TrainingPoint>& points) {
  const auto speed = [](const train::TrainingPoint& from, const train::TrainingPoint& to) {
    return static_cast<double>(to.tokens - from.tokens) / (to.seconds - from.seconds);
  };
  if (points.size() < 3 || points.back().seconds < kLongEnough) {
    return 1.0;
  }
  const train::TrainingPoint& end = points[std::max<std::size_t>(1, points.size() / 10)];
  return speed(end, points.back()) / speed(points.front(), end);
}

// Returns a sentence on the seed that selected the tuned values; empty if nothing was tuned.
std::string tuning_sentence(const std::vector<ComparedRun>& runs) {
  const ComparedRun& first = runs.front();
  if (first.tuning.size() < 2) {
    return "";
  }
  if (std::ranges::find(first.trained, first.tuning_seed, &TrainedRun::seed) == first.trained.end()) {
    return fmt::format("The tuned values were chosen with seed {}, which is not among the compared seeds.",
                       first.tuning_seed);
  }
  return fmt::format(
      "The tuned values were chosen with seed {}, {}, so the figures are better than those of other seeds would be.",
      first.tuning_seed, first.trained.size() < 2 ? "the one that is compared" : "one of the compared seeds");
}

// Returns a sentence that names the models with missing seeds; empty if none are missing.
std::string unfinished(const Plan& plan, const std::vector<ComparedRun>& runs) {
  std::vector<std::string> models;
  for (const PlannedModel& model : plan.models) {
    const auto run = std::ranges::find(runs, model.name, &ComparedRun::name);
    const auto seeds = run == runs.end() ? 0 : static_cast<std::int64_t>(run->trained.size());
    if (seeds < plan.seeds) {
      models.push_back(plan.seeds == 1 ? model.name
                                       : fmt::format("{} ({} of {} seeds)", model.name, seeds, plan.seeds));
    }
  }
  return models.empty() ? "" : fmt::format("Not finished yet: {}.", enumerated(models));
}

}  // namespace

std::vector<std::string> load_notes(const std::vector<ComparedRun>& runs) {
  std::vector<std::pair<double, std::string>> shares;
  std::vector<std::string> sentences, changed;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      const std::string name = run.trained.size() < 2 ? run.name : fmt::format("{}, seed {}", run.name, trained.seed);
      if (trained.result.core_share > 0.0 && trained.result.seconds >= kLongEnough) {
        shares.emplace_back(trained.result.core_share, name);
      }
      if (const double change = change_of_speed(trained.log.training); change > kUnequal || change < 1.0 / kUnequal) {
        changed.push_back(fmt::format("{} ({} times)", name, format_decimal(change, 2)));
      }
    }
  }
  if (const auto [low, high] = std::ranges::minmax_element(shares);
      !shares.empty() && high->first > kUnequal * low->first) {
    sentences.push_back(
        fmt::format("The runs got unequal shares of the cores, from {:.0f}% ({}) to {:.0f}% ({}), so their training "
                    "times say little "
                    "about the models.",
                    100.0 * low->first, low->second, 100.0 * high->first, high->second));
  }
  if (!changed.empty()) {
    sentences.push_back(
        fmt::format("The speed changed by more than 25% after the first steps, so training times depend on "
                    "what else was running: {}.",
                    enumerated(changed)));
  }
  return sentences;
}

std::vector<std::string> notes_on(const CompareResult& result, const std::set<std::string>& expected) {
  std::vector<NamedConfig> configs = transformed(result.runs, [&](const ComparedRun& run) {
    return NamedConfig{run.name, run.config};
  });
  std::vector<std::string> sentences = training_differences(configs, expected), sizes, machines;
  std::int64_t smallest = INT64_MAX, largest = 0;
  for (const ComparedRun& run : result.runs) {
    for (const TrainedRun& trained : run.trained) {
      if (std::ranges::find(machines, trained.origin.machine) == machines.end()) {
        machines.push_back(trained.origin.machine);
      }
    }
    const std::int64_t parameters = run.result().parameters;
    smallest = std::min(smallest, parameters);
    largest = std::max(largest, parameters);
    sizes.push_back(fmt::format("{} ({})", short_number(static_cast<double>(parameters)), run.name));
  }
  if (result.kind != Kind::sweep && result.scaling.empty() &&
      static_cast<double>(largest) > 1.05 * static_cast<double>(smallest)) {
    sentences.push_back(fmt::format("The models have different sizes: {} parameters.", enumerated(sizes)));
  }
  if (machines.size() > 1) {
    sentences.push_back(fmt::format(
        "The machines or their settings differ, so times and memory cannot be compared: {}.", enumerated(machines)));
  }
  std::ranges::move(load_notes(result.runs), std::back_inserter(sentences));
  std::set<std::string> tested;
  for (const ComparedRun& run : result.runs) {
    for (const TrainedRun& trained : run.trained) {
      tested.insert(trained.test.data);
    }
  }
  tested.erase("");
  if (!tested.empty()) {
    sentences.push_back(fmt::format(
        "{} with the parameters that the validation figures are of: {}.",
        tested.size() == 1 ? "Test figures were measured" : "Test figures are of different data and were measured",
        enumerated({tested.begin(), tested.end()})));
  }
  std::vector<std::string> best, last;  // names of the runs, by the validation that their figures are from
  for (const ComparedRun& run : result.runs) {
    (run.result().best_step ? best : last).push_back(run.name);
  }
  if (!best.empty()) {
    sentences.push_back(last.empty() ? "Figures are those of each run's best validation (train.keep_best)."
                                     : fmt::format("Figures are those of the best validation of {} (train.keep_best), "
                                                   "but of the last one of {}.",
                                                   enumerated(best), enumerated(last)));
  }
  // All runs share the data and the tokenizer.
  const double unknown = result.runs.empty() ? 0.0 : tasks::figure(result.runs[0].result().figures(), "unknown_share");
  if (unknown > 0.0) {
    sentences.push_back(
        fmt::format("{:.2g}% of the validation tokens are words that are not in the vocabulary. Perplexity counts such "
                    "a word as one token; bits per byte count 8 bits for each of its bytes.",
                    100.0 * unknown));
  }
  if (std::string uncertain = uncertainty_note(result.runs); !uncertain.empty()) {
    sentences.push_back(std::move(uncertain));
  }
  add_edge_notes(result, sentences);
  return sentences;
}

CompareResult make_result(const ComparisonRecord& record, Runs& runs) {
  CompareResult result{.kind = record.kind,
                       .title = record.title,
                       .about = record.about,
                       .command = record.command,
                       .runs = summarise(record.plan, runs),
                       .variations = record.plan.variations,
                       .prompts = record.prompts,
                       .sampling = record.sampling};
  if (result.runs.empty()) {
    return result;
  }
  for (ComparedRun& run : result.runs) {
    if (const auto samples = record.samples.find(run.name); samples != record.samples.end()) {
      run.samples = samples->second;
    }
  }
  if (result.kind == Kind::sweep) {
    std::ranges::stable_sort(result.runs, [](const ComparedRun& a, const ComparedRun& b) { return a.better_than(b); });
  }
  result.scaling = scaling_of(result.runs);
  const std::vector<std::string> keys = keys_of(record.plan.variations);
  result.notes = notes_on(result, {keys.begin(), keys.end()});
  if (std::string missing = unfinished(record.plan, result.runs); !missing.empty()) {
    result.notes.push_back(std::move(missing));
  }
  result.conclusion = conclusion_of(result);
  if (std::string tuning = tuning_sentence(result.runs); !tuning.empty()) {
    result.conclusion.push_back(std::move(tuning));
  }
  add_speedups(result);
  return result;
}

}  // namespace headroom::compare
