// Converts a comparison to a JSON document.
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <optional>

#include "headroom/core/error.h"
#include "tools/compare/compare.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

// Returns a config value as a JSON number, boolean or list if it parses as one, else as a string.
Json as_json(const std::string& text) {
  try {
    return parse_json(text, "value");
  } catch (const UserError&) {
    return text;
  }
}

Json as_json(const Values& values) {
  Json object = Json::object();
  for (const auto& [key, value] : values) {
    object[key] = as_json(value);
  }
  return object;
}

Json as_json(const std::optional<Interval>& interval) {
  return interval ? Json{{"mean", interval->mean}, {"low", interval->low}, {"high", interval->high}} : Json();
}

void add_statistics(const ComparedRun& run, const ComparedRun& first, Json& json) {
  const std::vector<tasks::FigureKind>& kinds = run.task().figures();
  const tasks::FigureKind& headline = tasks::headline(kinds);
  const auto add_values = [&](const std::string& name, const std::vector<double>& values) {
    json[name + "_mean"] = mean(values);
    json[name + "_std"] = sample_deviation(values);
  };
  const auto add = [&](const std::string& name, const std::string& figure) {
    add_values(name, run.over_seeds(figure));
  };
  for (const auto& [figure, value] : run.trained.front().test.figures) {
    add_values("test_" + figure, run.tests_over_seeds(figure));
  }
  for (const tasks::FigureKind& kind : kinds) {
    if (kind.always || std::isfinite(mean(run.over_seeds(kind.name)))) {
      add(kind.metric, kind.name);
    }
  }
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(kinds)) {
    add(kind.name, kind.name);
  }
  const auto against_first = [&](const tasks::FigureKind& kind) {
    return &run == &first ? std::nullopt
                          : paired_difference(run.over_seeds(kind.name), first.over_seeds(kind.name), kind.range);
  };
  json["difference"] = as_json(against_first(kinds.front()));
  json[headline.name + "_difference"] = as_json(against_first(headline));
}

Json as_json(const ComparedRun& run, const ComparedRun& first) {
  const std::string headline = run.headline_kind().name;
  Json json = {{"name", run.name}};
  json.update(to_json(run.result(), run.task()));
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(run.task().figures())) {
    json[kind.name] = tasks::figure(run.result().figures(), kind.name);
  }
  json["seeds"] = Json::array();
  bool interrupted = false;
  for (const TrainedRun& trained : run.trained) {
    Json seed = {{"seed", trained.seed}};
    seed.update(to_json(trained.result, run.task()));
    seed["machine"] = trained.origin.machine;
    for (const auto& [figure, value] : trained.test.figures) {
      seed["test_" + figure] = value;
    }
    interrupted = interrupted || trained.result.interrupted;
    json["seeds"].push_back(std::move(seed));
  }
  add_statistics(run, first, json);
  if (!run.values.empty()) {
    json["values"] = as_json(run.values);
  }
  for (const TuningResult& tried : run.tuning) {
    json["tried"].push_back({{"values", as_json(tried.values)}, {headline, tried.headline}, {"chosen", tried.chosen}});
  }
  json["attention_macs"] = run.attention_macs;
  json["attention_memory"] = run.attention_memory;
  json["executed"] = run.executed;
  json["interrupted"] = interrupted;
  json["machine"] = run.trained.front().origin.machine;
  json["samples"] = run.samples;
  return json;
}

Json as_json(const std::optional<Saving>& saving) {
  return saving ? Json{{"loss", saving->loss},
                       {"ratio", saving->ratio},
                       {"low", saving->low ? Json(*saving->low) : Json()},
                       {"high", saving->high ? Json(*saving->high) : Json()},
                       {"extrapolated", saving->extrapolated}}
                : Json();
}

Json as_json(const std::optional<EffectiveSpeedups::Speedup>& speedup) {
  Json json = speedup ? as_json(std::optional(speedup->time)) : Json();
  if (speedup) {
    json["tokens"] = as_json(std::optional(speedup->tokens));
    json["basis"] = "learning_curves";
  }
  return json;
}

Json as_json(const ScaledFamily& family) {
  Json json = {{"family", family.name}, {"models", Json::array()}};
  for (const ScaledModel& model : family.models) {
    json["models"].push_back({{"name", model.name},
                              {"flops", model.flops},
                              {"loss", model.loss()},
                              {"saving", as_json(model.saving)},
                              {"speedup", as_json(model.speedup)}});
    json["models"].back()["improvement"] = as_json(model.improvement);
  }
  const bool fitted = family.unfitted.empty();
  json["coefficient"] = fitted ? Json(family.law.coefficient) : Json();
  json["exponent"] = fitted ? Json(family.law.exponent) : Json();
  json["residual"] = fitted ? Json(family.residual) : Json();
  json["saving"] = as_json(family.saving);
  json["speedup"] = as_json(family.speedup);
  return json;
}

}  // namespace

Json to_json(const CompareResult& result) {
  Json runs = Json::array();
  for (std::size_t r = 0; r < result.runs.size(); ++r) {
    runs.push_back(as_json(result.runs[r], result.runs.front()));
    const auto& speedups = result.speedups.of_runs;
    runs.back()["effective_speedup"] = speedups.empty() ? Json() : as_json(speedups[r]);
  }
  Json json = {{"runs", std::move(runs)},
               {"prompts", result.prompts},
               {"notes", result.notes},
               {"conclusion", fmt::format("{}", fmt::join(result.conclusion, " "))},
               {"report", result.report.string()},
               {"interrupted", result.interrupted}};
  for (const ScaledFamily& family : result.scaling) {
    json["scaling"].push_back(as_json(family));
  }
  for (const CompareResult& further : result.further) {
    json["further"].push_back(to_json(further));
  }
  return json;
}

}  // namespace headroom::compare
