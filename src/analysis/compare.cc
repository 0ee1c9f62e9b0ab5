// The comparison itself: train what is not trained yet, let every model speak, write the page.
#include "headroom/analysis/compare.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>

#include "fairness.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/cost/report.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/eval/generate.h"
#include "headroom/models/language_model.h"
#include "headroom/tasks/task.h"
#include "headroom/train/compute.h"
#include "markup.h"
#include "result_file.h"

namespace headroom::analysis {
namespace {

namespace fs = std::filesystem;

// The config that a run folder was trained with.
config::Config folder_config(const fs::path& folder) {
  const fs::path file = folder / "config.toml";
  return config::parse_config(read_text_file(file), file.string());
}

bool is_finished(const fs::path& folder) {
  return fs::exists(folder / "result.json");
}

// A folder of an earlier comparison must hold the same run; found out before any training.
void check_folder(const fs::path& folder, const config::Config& config) {
  if (!fs::exists(folder / "config.toml")) {
    return;
  }
  const config::Config there = folder_config(folder);
  config::Config here = config;
  if (here.vocabulary_follows_tokenizer) {
    here.model.vocabulary_size = there.model.vocabulary_size;
  }
  const std::string difference = first_difference(there, here);
  if (!difference.empty()) {
    misuse("compare: {} holds a run of another configuration ({}): choose another folder or remove it", folder.string(),
           difference);
  }
}

std::string describe_machine(const config::TrainOptions& options) {
  const std::int64_t threads = options.threads == 0 ? physical_cores() : options.threads;
  const at::Device device = train::resolve(options.device);
  return fmt::format("{}, {}{}, {}, torch {}", cpu_name(), counted(static_cast<std::size_t>(threads), "thread"),
                     device.is_cpu() ? "" : ", " + device.str(),
                     config::name_of(train::resolve(options.precision, device)), TORCH_VERSION);
}

FinishedRun train_or_keep(const NamedConfig& named, const CompareRequest& request, std::size_t index) {
  const tasks::Task& task = tasks::task_for(named.config.model, "compare");
  const fs::path folder = request.out / named.name;
  const std::string place = fmt::format("{} ({}/{})", named.name, index + 1, request.configs.size());
  if (is_finished(folder)) {
    log_info("{}: trained before, kept; remove {} to train it again", place, folder.string());
    return read_result(folder / "result.json", task);
  }
  FinishedRun run;
  run.result =
      train::train({.config = named.config, .out = folder, .resume = true, .cache = request.cache, .title = place});
  run.machine = describe_machine(named.config.train);
  if (!run.result.interrupted) {
    write_result(run, task, folder / "result.json");
  }
  return run;
}

void add_costs(ComparedRun& run) {
  const Json costs = cost::cost_json(run.name, run.config);
  run.attention_macs = costs.at("attention_macs").get<std::int64_t>();
  run.attention_memory = costs.at("attention_memory").get<std::int64_t>();
  run.executed = costs.at("executed");
}

std::vector<std::string> speak(const fs::path& folder, const CompareResult& result, const CompareRequest& request) {
  const eval::Checkpoint checkpoint = eval::read_checkpoint(eval::find_checkpoint(folder));
  const at::Device device = train::resolve(checkpoint.config.train.device);
  const nn::Context context = train::make_context(checkpoint.config.train, device);
  const std::unique_ptr<models::Model> model = eval::build_writer(checkpoint, device, context);
  const models::LanguageModel& writer = models::as_language_model(*model, "compare");
  std::vector<std::string> texts;
  for (const std::string& prompt : result.prompts) {
    eval::GenerateOptions options;
    options.tokens = request.sample_tokens;
    options.temperature = request.sample_temperature;
    options.seed = request.sample_seed;
    options.context = context;
    texts.push_back(eval::generate(writer, *checkpoint.tokenizer, prompt, options).text);
  }
  return texts;
}

// Things that only show once the runs are there.
void add_notes(CompareResult& result) {
  std::vector<std::string> sizes, machines;
  std::int64_t smallest = INT64_MAX, largest = 0;
  for (const ComparedRun& run : result.runs) {
    smallest = std::min(smallest, run.result.parameters);
    largest = std::max(largest, run.result.parameters);
    if (std::find(machines.begin(), machines.end(), run.machine) == machines.end()) {
      machines.push_back(run.machine);
    }
    sizes.push_back(fmt::format("{} ({})", short_number(static_cast<double>(run.result.parameters)), run.name));
  }
  if (static_cast<double>(largest) > 1.05 * static_cast<double>(smallest)) {
    result.notes.push_back(fmt::format("The models are not of one size: {} parameters.", enumerated(sizes)));
  }
  if (machines.size() > 1) {
    result.notes.push_back(fmt::format("Times and memory were measured differently: {}.", enumerated(machines)));
  }
}

}  // namespace

CompareResult compare(const CompareRequest& request) {
  CompareResult result;
  result.title = request.title;
  result.about = request.about;
  result.command = request.command;
  result.notes = check_fairness(request.configs);
  const FolderLock lock(request.out);
  bool all_finished = true;
  for (const NamedConfig& named : request.configs) {
    check_folder(request.out / named.name, named.config);
    all_finished = all_finished && is_finished(request.out / named.name);
  }
  const config::Config& first = request.configs.front().config;
  const tasks::Task& task = tasks::task_for(first.model, "compare");
  if (!all_finished) {  // outside the runs, so that it costs none of them time or memory
    task.open(first, request.cache);
  }

  for (std::size_t i = 0; i < request.configs.size(); ++i) {
    const NamedConfig& named = request.configs[i];
    FinishedRun finished = train_or_keep(named, request, i);
    ComparedRun run;
    run.name = named.name;
    run.config = folder_config(request.out / named.name);
    run.result = std::move(finished.result);
    run.machine = std::move(finished.machine);
    add_costs(run);
    result.interrupted = run.result.interrupted;
    result.runs.push_back(std::move(run));
    if (result.interrupted) {
      return result;
    }
  }
  result.prompts = request.prompts;
  if (result.prompts.empty()) {
    const std::string beginning = task.open(first, request.cache).validation->beginning();
    if (!beginning.empty()) {
      result.prompts.push_back(beginning);
    }
  }
  result.sampling =
      fmt::format("{}, temperature {}, seed {}", counted(static_cast<std::size_t>(request.sample_tokens), "token"),
                  request.sample_temperature, request.sample_seed);
  for (ComparedRun& run : result.runs) {
    run.samples = result.prompts.empty() ? std::vector<std::string>() : speak(request.out / run.name, result, request);
  }
  add_notes(result);
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

Json to_json(const CompareResult& result) {
  Json runs = Json::array();
  for (const ComparedRun& run : result.runs) {
    Json json = {{"name", run.name}};
    json.update(to_json(run.result, run.task()));
    json[tasks::headline(run.task().figures()).name] = run.headline();
    json["attention_macs"] = run.attention_macs;
    json["attention_memory"] = run.attention_memory;
    json["executed"] = run.executed;
    json["interrupted"] = run.result.interrupted;
    json["machine"] = run.machine;
    json["samples"] = run.samples;
    runs.push_back(std::move(json));
  }
  return {{"runs", std::move(runs)},         {"prompts", result.prompts},        {"notes", result.notes},
          {"conclusion", result.conclusion}, {"report", result.report.string()}, {"interrupted", result.interrupted}};
}

}  // namespace headroom::analysis
