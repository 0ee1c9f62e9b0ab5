#include "assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/core/files.h"
#include "scaling.h"
#include "summary.h"
#include "tools/compare/demo.h"
#include "tools/compare/report/markup.h"
#include "tools/compare/run/fairness.h"

namespace headroom::compare {
namespace {

// A run without a figure, as one that diverged, comes last.
void put_best_first(std::vector<ComparedRun>& runs, const tasks::Task& task) {
  const bool higher = tasks::headline(task.figures()).better == tasks::Better::higher;
  std::stable_sort(runs.begin(), runs.end(), [&](const ComparedRun& a, const ComparedRun& b) {
    const double mine = a.headline(), other = b.headline();
    return a.has_figure() && b.has_figure() ? (higher ? mine > other : mine < other)
                                            : a.has_figure() && !b.has_figure();
  });
}

Conclusion conclusion_of(const CompareResult& result) {
  if (result.kind == Kind::sweep) {
    return conclude_sweep(result.runs);
  }
  if (!result.scaling.empty()) {
    return conclude_scaling(result.scaling);
  }
  constexpr std::size_t kDemoRuns = 3;
  const bool whole =
      std::all_of(result.runs.begin(), result.runs.end(), [](const ComparedRun& run) { return run.has_figure(); });
  return result.kind == Kind::demo && result.runs.size() == kDemoRuns && whole ? conclude_demo(result.runs)
                                                                               : conclude(result.runs);
}

// Empty when every model has all its seeds.
std::string unfinished(const Plan& plan, const std::vector<ComparedRun>& runs) {
  std::vector<std::string> models;
  for (const PlannedModel& model : plan.models) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const ComparedRun& r) { return r.name == model.name; });
    const auto seeds = run == runs.end() ? 0 : static_cast<std::int64_t>(run->trained.size());
    if (seeds < plan.seeds) {
      models.push_back(plan.seeds == 1 ? model.name
                                       : fmt::format("{} ({} of {} seeds)", model.name, seeds, plan.seeds));
    }
  }
  return models.empty() ? "" : fmt::format("Not finished yet: {}.", enumerated(models));
}

}  // namespace

CompareResult assemble(const Record& record, Runs& runs, const tasks::Task& task) {
  CompareResult result{.kind = record.kind,
                       .title = record.title,
                       .about = record.about,
                       .command = record.command,
                       .runs = summarise(record.plan, runs, task),
                       .variations = record.plan.variations,
                       .prompts = record.prompts,
                       .sampling = record.sampling};
  if (result.runs.empty()) {
    return result;
  }
  std::vector<NamedConfig> configs;
  for (ComparedRun& run : result.runs) {
    configs.push_back({run.name, run.config});
    if (const auto samples = record.samples.find(run.name); samples != record.samples.end()) {
      run.samples = samples->second;
    }
  }
  const std::vector<std::string> keys = keys_of(record.plan.variations);
  result.notes = treated_unlike(configs, {keys.begin(), keys.end()});
  if (result.kind == Kind::sweep) {
    put_best_first(result.runs, task);
  }
  result.scaling = scaling_of(result.runs);
  for (std::string& remark : remarks(result)) {
    result.notes.push_back(std::move(remark));
  }
  if (std::string missing = unfinished(record.plan, result.runs); !missing.empty()) {
    result.notes.push_back(std::move(missing));
  }
  result.conclusion = conclusion_of(result);
  return result;
}

void publish(CompareResult& result, const std::filesystem::path& out) {
  result.report = out / "report.html";
  write_text_file(result.report, render_report(result));
}

}  // namespace headroom::compare
