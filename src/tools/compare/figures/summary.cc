#include "summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "statistics.h"
#include "tools/compare/report/markup.h"
#include "training/cost/cost.h"
#include "training/cost/report.h"

namespace headroom::compare {
namespace {

double headline_of(const TrainedRun* run, const tasks::Task& task) {
  return run == nullptr ? std::numeric_limits<double>::quiet_NaN()
                        : tasks::figure(run->result.figures(), tasks::headline(task.figures()).name);
}

// "smallest" or "largest" where `best` is that of the values tried; empty where it is neither, or where they are not
// numbers.
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

// "dense and moa: the best train.learning_rate, 0.003, is the largest of those tried: ...": a sentence for all runs
// that took the same value, without names where these are all that there are.
void add_edge_remarks(const CompareResult& result, std::vector<std::string>& sentences) {
  const auto counts =
      static_cast<std::ptrdiff_t>(result.kind == Kind::sweep ? 1 : result.runs.size());  // of a sweep the best
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
      sentences.push_back(fmt::format("{} best {}, {}, is the {} of those tried: a better one may lie beyond.",
                                      all ? "The" : enumerated(names) + ": the", result.variations[key].key, value,
                                      edge_of(value, result.variations[key].values)));
    }
  }
}

// Of the run whose loss is the least certain; empty where all are certain enough.
std::string uncertainty_remark(const std::vector<ComparedRun>& runs) {
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
  return uncertain.empty()
             ? ""
             : fmt::format(
                   "The validation data is small: {} ({}); on other text the order of close models may be "
                   "another, whatever their seeds.",
                   uncertain, worst->name);
}

}  // namespace

std::size_t best_choice(const PlannedModel& model, Runs& runs, const tasks::Task& task) {
  const bool higher = tasks::headline(task.figures()).better == tasks::Better::higher;
  std::size_t best = 0;
  double best_figure = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < model.choices.size(); ++i) {
    const double figure = headline_of(runs.find(model.choices[i]), task);
    if (std::isfinite(figure) && !(higher ? figure <= best_figure : figure >= best_figure)) {
      best = i;
      best_figure = figure;
    }
  }
  return best;
}

std::vector<ComparedRun> summarise(const Plan& plan, Runs& runs, const tasks::Task& task) {
  std::vector<ComparedRun> lines;
  for (const PlannedModel& model : plan.models) {
    if (model.choices.empty()) {
      continue;
    }
    const std::size_t best = best_choice(model, runs, task);
    const PlannedRun& chosen = model.choices[best];
    ComparedRun line;
    for (std::int64_t index = 0; index < plan.seeds; ++index) {
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
    line.config = folder_config(chosen.folder);
    line.folder = chosen.folder;
    line.values = chosen.values;
    for (std::size_t i = 0; model.choices.size() > 1 && i < model.choices.size(); ++i) {
      if (const TrainedRun* tried = runs.find(model.choices[i]); tried != nullptr) {
        const double figure = headline_of(tried, task);
        line.tried.push_back({model.choices[i].values, figure, i == best && std::isfinite(figure)});
      }
    }
    add_costs(line);
    lines.push_back(std::move(line));
  }
  return lines;
}

void add_costs(ComparedRun& run) {
  const Json costs = cost::cost_json(run.name, run.config);
  run.attention_macs = costs.at("attention_macs").get<std::int64_t>();
  run.attention_memory = costs.at("attention_memory").get<std::int64_t>();
  run.executed = costs.at("executed");
}

std::vector<std::string> remarks(const CompareResult& result) {
  std::vector<std::string> sentences, sizes, machines;
  std::int64_t smallest = INT64_MAX, largest = 0;
  for (const ComparedRun& run : result.runs) {
    for (const TrainedRun& trained : run.trained) {
      if (std::find(machines.begin(), machines.end(), trained.machine) == machines.end()) {
        machines.push_back(trained.machine);
      }
    }
    const std::int64_t parameters = run.result().parameters;
    smallest = std::min(smallest, parameters);
    largest = std::max(largest, parameters);
    sizes.push_back(fmt::format("{} ({})", short_number(static_cast<double>(parameters)), run.name));
  }
  if (result.kind != Kind::sweep && result.scaling.empty() &&
      static_cast<double>(largest) > 1.05 * static_cast<double>(smallest)) {
    sentences.push_back(fmt::format("The models are not of one size: {} parameters.", enumerated(sizes)));
  }
  if (machines.size() > 1) {
    sentences.push_back(fmt::format("Times and memory were measured differently: {}.", enumerated(machines)));
  }
  // The runs' data and tokenizer are the same: what one knows they all know.
  const double unknown = result.runs.empty() ? 0.0 : tasks::figure(result.runs[0].result().figures(), "unknown_share");
  if (unknown > 0.0) {
    sentences.push_back(fmt::format(
        "{:.2g}% of the validation tokens are words that the tokenizer does not know: perplexity asks no more than to "
        "expect one, bits per byte count their bytes at 8 bits each.",
        100.0 * unknown));
  }
  if (std::string uncertain = uncertainty_remark(result.runs); !uncertain.empty()) {
    sentences.push_back(std::move(uncertain));
  }
  add_edge_remarks(result, sentences);
  return sentences;
}

}  // namespace headroom::compare
