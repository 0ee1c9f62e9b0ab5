// compare, sweep and report: plan, train what is not trained yet, sum up, let every model speak, write the page.
#include "compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/compare/figures/assemble.h"
#include "tools/compare/figures/samples.h"
#include "tools/compare/figures/scaling.h"
#include "tools/compare/figures/summary.h"
#include "tools/compare/report/markup.h"
#include "tools/compare/run/carry_out.h"
#include "tools/compare/run/check_plan.h"
#include "tools/compare/run/record.h"
#include "tools/compare/run/replace.h"
#include "tools/compare/run/single_run.h"
#include "training/tasks/task.h"
#include "training/train/loop/initial_parameters.h"
#include "training/train/record/folder.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

// Prompts, how they are continued, and what each model makes of them.
void add_samples(Record& record, const CompareRequest& request, Runs& runs, const tasks::Task& task) {
  record.prompts = request.prompts;
  if (record.prompts.empty()) {
    const std::string beginning = task.open(request.configs.front().config, request.cache).validation->sample_prompt();
    if (!beginning.empty()) {
      record.prompts.push_back(beginning);
    }
  }
  record.sampling =
      fmt::format("{}, temperature {}, seed {}", counted(static_cast<std::size_t>(request.sample_tokens), "token"),
                  request.sample_temperature, request.sample_seed);
  for (const PlannedModel& model : record.plan.models) {
    const PlannedRun& best = model.choices[best_choice(model, runs, task)];
    if (runs.find(best)->diverged.empty()) {
      record.samples[model.name] = speak(best.folder, record.prompts, request);
    }
  }
}

struct Place {
  fs::path out, cache;
  parallel::GlooGroup* group;  // may be null
};

// The folder of a comparison, waited for: several processes of the same command, which share its runs out among
// themselves, each need it for moments.
std::unique_ptr<FolderLock> hold(const fs::path& out, std::string_view command) {
  constexpr auto kTry = std::chrono::milliseconds(100);
  for (bool said = false;; said = true) {
    try {
      return std::make_unique<FolderLock>(out);
    } catch (const InUseError& error) {
      if (interrupted()) {
        throw InterruptedError(fmt::format("{}: interrupted while waiting for {}", command, out.string()));
      }
      if (!said) {
        log_debug("waiting: {}", error.what());
      }
      std::this_thread::sleep_for(kTry);
    }
  }
}

// Trains what `record` plans in the place, then calls `finish`, which may add to the record, and writes the page. Of
// processes that train each run together all train, and the leading one does the rest.
template <class Finish>
CompareResult conduct(Record record, const std::vector<std::string>& prompts, const Place& place,
                      const Finish& finish) {
  const auto& [out, cache, group] = place;
  const bool leads = group == nullptr || group->leads(), together = group != nullptr && group->size() > 1;
  check_choices(record.plan);
  check_seeds(record.plan, record.plan.command);
  train::refuse_others(out, train::FolderKind::comparison, "a comparison");
  refuse_to_lose(record, out);
  const config::Config& first = record.plan.models.front().choices.front().config;
  const tasks::Task& task = tasks::task_for(first, record.plan.command);
  Runs runs(task, cache, group);
  std::unique_ptr<FolderLock> lock = leads ? hold(out, record.plan.command) : nullptr;
  check_folders(record.plan);
  if (leads) {
    if (!is_carried_out(record.plan, runs, task)) {  // outside the runs, so that it costs none of them time or memory
      check_runs(record.plan, prompts, task, cache);
    }
    write_record(record, out);
  }
  if (!together) {
    lock.reset();  // others may come and help
  }
  if (group != nullptr) {
    group->gather("");  // nobody trains before all is checked
  }
  const Outcome outcome = carry_out(record.plan, runs, task);
  if (leads && !together) {
    lock = hold(out, record.plan.command);
  }
  if (leads && !outcome.interrupted) {
    finish(record, runs, task);
    write_record(record, out);
  }
  CompareResult result = assemble(record, runs, task);
  result.failure = outcome.failure;
  result.interrupted = outcome.interrupted;
  if (result.interrupted) {
    result.conclusion.clear();
  } else if (leads) {
    publish(result, out);
  }
  return result;
}

}  // namespace

CompareResult compare(const CompareRequest& request) {
  check_fairness(request.configs);
  check_families(request.configs);
  Record record{.kind = request.kind, .title = request.title, .about = request.about, .command = request.command};
  record.plan = plan_comparison(request);
  return conduct(std::move(record), request.prompts, {request.out, request.cache, request.group},
                 [&](Record& done, Runs& runs, const tasks::Task& task) { add_samples(done, request, runs, task); });
}

CompareResult sweep(const SweepRequest& request) {
  Record record{
      .kind = Kind::sweep, .title = "Sweep of " + request.config.name, .about = "", .command = request.command};
  record.plan = plan_sweep(request);
  return conduct(std::move(record), {}, {request.out, request.cache, request.group},
                 [](Record&, Runs&, const tasks::Task&) {});
}

CompareResult result_in(const fs::path& folder) {
  if (!fs::exists(folder / kRecordFile)) {
    return single_run(folder);
  }
  const Record record = read_record(folder);
  const auto trained = std::find_if(record.plan.models.begin(), record.plan.models.end(),
                                    [](const PlannedModel& model) { return !model.choices.empty(); });
  CompareResult result;
  if (trained != record.plan.models.end()) {
    const tasks::Task& task = tasks::task_for(trained->choices.front().config, "report");
    Runs runs(task, {});
    result = assemble(record, runs, task);
  }
  if (result.runs.empty()) {
    user_error("report: {}: no run of it has finished yet", folder.string());
  }
  return result;
}

CompareResult report(const fs::path& folder) {
  CompareResult result = result_in(folder);
  publish(result, folder);
  return result;
}

std::vector<NamedConfig> load_configs(const std::vector<std::string>& paths_or_recipes,
                                      const std::vector<std::string>& overrides) {
  std::vector<NamedConfig> configs;
  for (const std::string& path : paths_or_recipes) {
    const std::string stem = fs::path(path).stem().string();
    const auto same = std::count_if(paths_or_recipes.begin(), paths_or_recipes.end(),
                                    [&](const std::string& other) { return fs::path(other).stem() == stem; });
    std::string name = stem;
    if (same > 1) {
      name = (fs::path(path).parent_path().filename() / stem).string();
      std::replace(name.begin(), name.end(), '/', '.');
    }
    configs.push_back(
        {.name = std::move(name), .config = train::with_initial_parameters(config::load_config(path, overrides))});
  }
  return configs;
}

}  // namespace headroom::compare
