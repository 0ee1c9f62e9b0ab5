// compare and sweep: plan the runs, train them, summarise the results, generate sample texts and write the page.
#include "compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/decode/generate.h"
#include "headroom/models/language_model.h"
#include "headroom/store/open_model.h"
#include "tools/compare/report/sections.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/run/execution.h"
#include "tools/compare/statistics.h"
#include "training/train/loop/start.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

constexpr double kSampleTemperature = 0.8;
constexpr std::uint64_t kSampleSeed = 1;

// Returns each prompt's continuation by the model of a run folder.
std::vector<std::string> generate_samples(const fs::path& folder, const std::vector<std::string>& prompts,
                                          std::int64_t tokens) {
  std::vector<std::string> texts;
  if (prompts.empty()) {
    return texts;
  }
  const store::OpenedModel opened = store::open_model(folder.string(), {.writes = true});
  const models::LanguageModel& writer = models::as_language_model(*opened.model, "compare");
  for (const std::string& prompt : prompts) {
    decode::GenerateOptions options;
    options.tokens = tokens;
    options.temperature = kSampleTemperature;
    options.seed = kSampleSeed;
    options.context = opened.context;
    texts.push_back(decode::generate(writer, *opened.checkpoint.tokenizer, prompt, options).text);
    if (interrupted()) {
      throw InterruptedError("compare: interrupted while generating sample texts");
    }
  }
  return texts;
}

std::string sampling(std::int64_t tokens) {
  return fmt::format("{}, temperature {}, seed {}", counted(static_cast<std::size_t>(tokens), "token"),
                     kSampleTemperature, kSampleSeed);
}

// Sets the record's prompts and sampling options, and the samples of all models.
void add_samples(ComparisonRecord& record, const CompareRequest& request, Runs& runs, const tasks::Task& task) {
  record.prompts = request.prompts;
  if (record.prompts.empty()) {
    const std::string beginning = task.open(request.configs.front().config, request.cache).validation->sample_prompt();
    if (!beginning.empty()) {
      record.prompts.push_back(beginning);
    }
  }
  record.sampling = sampling(request.sample_tokens);
  record.samples.clear();
  for (const PlannedModel& model : record.plan.models) {
    const PlannedRun best = with_seed(model.choices[runs.best_choice(model)], record.plan.first_index());
    if (const TrainedRun* run = runs.find(best); run != nullptr && run->diverged.empty()) {
      record.samples[model.name] = generate_samples(best.folder, record.prompts, request.sample_tokens);
    }
  }
}

// Evaluates the compared runs on the request's test data.
void test_runs(const Plan& plan, const CompareRequest& request, Runs& runs) {
  for (const PlannedModel& model : plan.models) {
    for (std::int64_t index = plan.first_index(); index < plan.end_index(); ++index) {
      const PlannedRun run = with_seed(model.choices[runs.best_choice(model)], index);
      if (const TrainedRun* trained = runs.find(run); trained != nullptr && trained->diverged.empty()) {
        runs.test(run, request.test);
      }
    }
  }
}

// Throws UserError if the test data cannot be read.
void check_test(const CompareRequest& request, const config::Config& config, const tasks::Task& task) {
  if (config.data.synthetic != config::Synthetic::none) {
    user_error("compare: --test: must not be given with data.synthetic = \"{}\", which generates its rows",
               config::name_of(config.data.synthetic));
  }
  const auto tokenizer = config.model.has_classes() ? nullptr : task.open(config, request.cache).tokenizer;
  task.open_evaluation({.config = train::with_vocabulary_of(config, tokenizer.get()),
                        .tokenizer = tokenizer,
                        .files = request.test,
                        .cache = request.cache});
}

// Trains the record's plan, generates the samples of a comparison and writes the page. With several ranks, all of them
// train; the leading rank does the rest.
CompareResult run_study(ComparisonRecord record, const CompareRequest& request) {
  const fs::path &out = request.out, &cache = request.cache;
  const bool leads = request.group->leads();
  check_choices(record.plan);
  check_seeds(record.plan);
  train::refuse_others(out, train::FolderKind::comparison, "a comparison");
  check_overwrite(record, out);
  const config::Config& first = record.plan.models.front().choices.front().config;
  const tasks::Task& task = tasks::task_for(first, record.plan.command);
  Runs runs(task, cache, request.group);
  const std::unique_ptr<FolderLock> lock = leads ? std::make_unique<FolderLock>(out) : nullptr;
  check_folders(record.plan);
  if (leads) {
    if (!runs.have_finished(record.plan)) {
      check_runs(record.plan, request.prompts, task, cache);  // not while runs are measured
    }
    if (!request.test.empty()) {
      check_test(request, first, task);
    }
    if (const std::optional<ComparisonRecord> before =
            record_in(out)) {  // its samples remain until new ones replace them
      record.prompts = before->prompts;
      record.sampling = before->sampling;
      record.samples = before->samples;
    }
    write_record(record, out);
  }
  request.group->gather("");  // no rank trains before the checks have passed
  const Outcome outcome = execute(record.plan, runs);
  if (!outcome.interrupted && !request.test.empty()) {
    test_runs(record.plan, request, runs);
  }
  if (leads && !outcome.interrupted) {
    if (record.kind != Kind::sweep) {
      add_samples(record, request, runs, task);
    }
    write_record(record, out);
  }
  CompareResult result = make_result(record, runs);
  result.failure = outcome.failure;
  result.interrupted = outcome.interrupted;
  if (result.interrupted) {
    result.conclusion.clear();
  } else if (leads) {
    write_page(result, out / kPageFile);
  }
  return result;
}

void check_budget(const CompareRequest& request) {
  if (request.group->size() > 1) {
    user_error("compare: --budget: works with one rank, got {}", request.group->size());
  }
  const auto is_timed = [](const NamedConfig& named) { return named.config.train.seconds > 0.0; };
  if (const auto timed = std::ranges::find_if(request.configs, is_timed); timed != request.configs.end()) {
    user_error("compare: --budget: sets the steps, and so does train.seconds = {} of {}; give one of them",
               timed->config.train.seconds, timed->name);
  }
}

}  // namespace

CompareResult compare(const CompareRequest& asked) {
  CompareRequest request = asked;
  check_names(request.configs);
  check_comparable(request.configs, "compare");
  check_families(request.configs);
  if (request.budget > 0.0) {
    check_budget(request);
    set_steps_within(request.budget, request);
  }
  return run_study({.kind = request.kind,
                    .title = request.title,
                    .about = request.about,
                    .command = request.command,
                    .plan = plan_comparison(request)},
                   request);
}

void add_sample(CompareResult& result) {
  constexpr std::int64_t kTokens = 60;
  ComparedRun& run = result.runs.front();
  const TrainedRun& trained = run.trained.front();
  if (run.config.model.kind != config::ModelKind::language_model ||
      run.config.data.synthetic != config::Synthetic::none || !trained.log.samples.empty() ||
      !fs::exists(run.folder / "checkpoints" / "latest")) {
    return;
  }
  try {
    run.samples = generate_samples(run.folder, {"The"}, kTokens);
    result.prompts = {"The"};
    result.sampling = sampling(kTokens);
  } catch (const UserError& error) {  // for example, a damaged checkpoint
    result.notes.push_back(fmt::format("No sample text: {}.", error.what()));
  }
}

CompareResult sweep(const CompareRequest& request) {
  return run_study({.kind = Kind::sweep,
                    .title = "Sweep of " + request.configs.front().name,
                    .about = "",
                    .command = request.command,
                    .plan = plan_sweep(request)},
                   request);
}

std::vector<NamedConfig> load_configs(const std::vector<std::string>& paths_or_recipes,
                                      const std::vector<std::string>& overrides) {
  std::vector<NamedConfig> configs;
  for (const std::string& path : paths_or_recipes) {
    const std::string stem = fs::path(path).stem().string();
    const auto same = std::ranges::count_if(paths_or_recipes,
                                            [&](const std::string& other) { return fs::path(other).stem() == stem; });
    std::string name = stem;
    if (same > 1) {
      name = (fs::path(path).parent_path().filename() / stem).string();
      std::ranges::replace(name, '/', '.');
    }
    configs.push_back({.name = std::move(name),
                       .config = train::with_teacher_sha256(
                           train::with_initial_parameters(config::load_run_config(path, overrides)))});
  }
  return configs;
}

}  // namespace headroom::compare
