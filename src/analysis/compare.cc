// The comparison itself: plan, train what is not trained yet, sum up, let every model speak, write the page.
#include "headroom/analysis/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fairness.h"
#include "headroom/core/files.h"
#include "headroom/tasks/task.h"
#include "markup.h"
#include "plan.h"
#include "runs.h"
#include "samples.h"
#include "summary.h"

namespace headroom::analysis {
namespace {

namespace fs = std::filesystem;

// Every choice of every model must be comparable with every other.
void check_choices(const Plan& plan) {
  std::vector<NamedConfig> all;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const std::string values = describe(choice.values);
      all.push_back({values.empty() ? model.name : fmt::format("{} with {}", model.name, values), choice.config});
    }
  }
  refuse_unlike(all);
}

// In seed order: each model's choices with the first seed, then for each other seed every model with its best.
class Training {
 public:
  Training(const Plan& plan, Runs& runs, const tasks::Task& task) : plan_(plan), runs_(runs), task_(task) {
    for (const PlannedModel& model : plan.models) {
      total_ += model.choices.size() + static_cast<std::size_t>(plan.seeds - 1);
    }
  }

  // Whether it came to its end; Ctrl-C stops it.
  bool run() {
    for (const PlannedModel& model : plan_.models) {
      for (const PlannedRun& choice : model.choices) {
        if (!train(model, choice, {})) {
          return false;
        }
      }
    }
    for (std::int64_t index = 1; index < plan_.seeds; ++index) {
      for (const PlannedModel& model : plan_.models) {
        const PlannedRun run = with_seed(model.choices[best_choice(model, runs_, task_)], index);
        if (!train(model, run, fmt::format(", seed {}", run.config.train.seed))) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  bool train(const PlannedModel& model, const PlannedRun& run, const std::string& seed) {
    const std::string values = describe(run.values);
    const std::string title =
        fmt::format("{}{}{}{} ({}/{})", model.name, values.empty() ? "" : ", ", values, seed, ++begun_, total_);
    return !runs_.train(run, {.title = title, .may_diverge = seed.empty() && !run.values.empty()}).result.interrupted;
  }

  const Plan& plan_;
  Runs& runs_;
  const tasks::Task& task_;
  std::size_t begun_ = 0, total_ = 0;
};

// Folders of an earlier comparison must hold the same runs; found out before any training. Whether all have finished.
bool check_folders(const Plan& plan) {
  bool finished = true;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      for (std::int64_t index = 0; index < plan.seeds; ++index) {
        const PlannedRun run = with_seed(choice, index);
        check_folder(run);
        finished = finished && is_finished(run.folder);
      }
    }
  }
  return finished;
}

// The models as they were trained with their first seed.
std::vector<NamedConfig> chosen_configs(const Plan& plan, Runs& runs, const tasks::Task& task) {
  std::vector<NamedConfig> chosen;
  for (const PlannedModel& model : plan.models) {
    chosen.push_back({model.name, model.choices[best_choice(model, runs, task)].config});
  }
  return chosen;
}

void add_samples(CompareResult& result, const CompareRequest& request, const tasks::Task& task) {
  result.prompts = request.prompts;
  if (result.prompts.empty()) {
    const std::string beginning = task.open(request.configs.front().config, request.cache).validation->beginning();
    if (!beginning.empty()) {
      result.prompts.push_back(beginning);
    }
  }
  result.sampling =
      fmt::format("{}, temperature {}, seed {}", counted(static_cast<std::size_t>(request.sample_tokens), "token"),
                  request.sample_temperature, request.sample_seed);
  for (ComparedRun& run : result.runs) {
    run.samples = speak(run.folder, result.prompts, request);
  }
}

}  // namespace

CompareResult compare(const CompareRequest& request) {
  CompareResult result;
  result.title = request.title;
  result.about = request.about;
  result.command = request.command;
  check_fairness(request.configs);
  const Plan plan = plan_comparison(request);
  check_choices(plan);
  result.seeds = plan.seeds;
  result.keys = plan.keys;
  const FolderLock lock(request.out);
  const config::Config& first = request.configs.front().config;
  const tasks::Task& task = tasks::task_for(first.model, "compare");
  if (!check_folders(plan)) {  // outside the runs, so that it costs none of them time or memory
    task.open(first, request.cache);
  }
  Runs runs(task, request.cache);
  result.interrupted = !Training(plan, runs, task).run();
  result.runs = summarise(plan, runs, task);
  if (result.interrupted) {
    return result;
  }
  result.notes = check_fairness(chosen_configs(plan, runs, task), {plan.keys.begin(), plan.keys.end()});
  for (std::string& remark : remarks(result.runs)) {
    result.notes.push_back(std::move(remark));
  }
  add_samples(result, request, task);
  result.conclusion = request.conclude ? request.conclude(result.runs) : conclude(result.runs);
  result.report = request.out / "report.html";
  write_text_file(result.report, render_report(result));
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
    configs.push_back({.name = std::move(name), .config = config::load_config(path, overrides)});
  }
  return configs;
}

}  // namespace headroom::analysis
