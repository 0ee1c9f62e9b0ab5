// The commands compare, sweep, try, report and demo.
#include <fmt/ranges.h>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "tools/compare/compare.h"
#include "tools/compare/trial/trial.h"
#include "tools/convert/convert.h"

namespace headroom::cli {
namespace {

// Prints the tables, notes and sentences.
void print_findings(const compare::CompareResult& result, const Output& output) {
  output.text(compare::render_table(result) + "\n");
  if (!result.scaling.empty()) {
    output.text(compare::render_scaling(result) + "\n");
  }
  for (const std::vector<std::string>* sentences : {&result.notes, &result.conclusion}) {
    for (const std::string& sentence : *sentences) {
      output.text(sentence + "\n");
    }
  }
  if (result.kind == compare::Kind::run) {
    if (const auto& samples = result.runs.front().trained.front().log.samples; !samples.empty()) {
      const compare::SampleText& last = samples.back();
      output.text(fmt::format("Sample at step {}:\n{}{}\n", last.step, last.prompt, last.text));
    }
  }
}

int print(const compare::CompareResult& result, const Output& output) {
  if (!parallel::default_group().leads()) {
    return result.interrupted ? interrupt_status() : 0;
  }
  output.document(compare::to_json(result));
  if (result.interrupted) {
    log_info("interrupted: repeat the command to continue");
    return interrupt_status();
  }
  print_findings(result, output);
  for (const compare::CompareResult& further : result.further) {
    output.text(fmt::format("\n{}. {}\n\n", further.title, further.about));
    print_findings(further, output);
  }
  output.text(result.report.string() + "\n");
  if (!result.failure.empty()) {
    fail("{}", result.failure);
  }
  return 0;
}

void add_converted(compare::CompareRequest& job, const Compare& command, std::vector<std::string> changes) {
  convert::StudyRequest request = command.study;
  request.overrides = std::move(changes);
  request.out = command.out;
  request.cache = job.cache;
  request.command = job.command;
  const convert::Study study = convert::plan_study(request);
  for (const convert::StudyRun& run : study.runs) {
    job.configs.push_back({.name = run.name, .config = run.config, .family = run.family});
  }
  job.title = "Conversions of " + request.source;
  job.about = fmt::format("{}", fmt::join(study.before_training, " "));
}

}  // namespace

int run(const Compare& command, const EngineRequest& request) {
  catch_interrupts();
  compare::CompareRequest job;
  const std::vector<std::string> changes = overrides(command.set, request);
  job.cache = cache_folder();
  job.command = request.command_line;
  if (!command.study.source.empty()) {
    add_converted(job, command, changes);
  } else {
    job.configs = command.families.empty() ? compare::load_configs(command.configs, changes)
                                           : compare::load_families(command.families, changes);
  }
  job.seeds = command.seeds;
  job.budget = command.budget;
  for (const std::string& text : command.tune) {
    job.variations.push_back(config::parse_variation(text, "compare: --tune"));
  }
  job.out = command.out;
  job.test = command.test;
  job.prompts = command.prompts;
  job.sample_tokens = command.sample_tokens;
  return print(compare::compare(job), request.output);
}

int run(const Sweep& command, const EngineRequest& request) {
  catch_interrupts();
  compare::CompareRequest job;
  job.configs = compare::load_configs({command.config}, overrides(command.set, request));
  for (const std::string& text : command.vary) {
    job.variations.push_back(config::parse_variation(text, "sweep: --vary"));
  }
  job.seeds = command.seeds;
  job.out = command.out;
  job.cache = cache_folder();
  job.command = request.command_line;
  return print(compare::sweep(job), request.output);
}

int run(const Report& command, const EngineRequest& request) {
  std::vector<std::filesystem::path> folders =
      compare::distinct_folders({command.folders.begin(), command.folders.end()});
  std::filesystem::path page = command.page;
  if (folders.size() > 1 && page.empty()) {
    page = (folders.front() / "x").lexically_normal().parent_path().parent_path() / "overlay.html";
  }
  if (!page.empty()) {
    require_replaceable_file(page.string(), "report: --page", "<!doctype html>", "is no page of Headroom");
  }
  if (command.watch) {
    catch_interrupts();
    return print(compare::watch(folders.front()), request.output);
  }
  if (folders.size() == 1 && !compare::has_page(folders.front())) {
    const std::vector<compare::ComparedRun> runs = compare::list_runs(folders.front());
    if (page.empty()) {
      request.output.document({{"runs", compare::to_json(runs)}});
      request.output.text(compare::render_runs(runs));
      return 0;
    }
    folders = transformed(runs, [](const compare::ComparedRun& run) { return run.folder; });
  }
  if (folders.size() == 1) {
    return print(compare::report(folders.front(), page), request.output);
  }
  compare::CompareResult result = compare::overlay(folders, request.command_line);
  compare::write_page(result, page);
  return print(result, request.output);
}

int run(const Demo& command, const EngineRequest& request) {
  catch_interrupts();
  compare::CompareRequest job;
  job.out = command.out;
  job.cache = cache_folder();
  job.seeds = command.seeds;
  job.command = request.command_line;
  return print(compare::demo(job, overrides(command.set, request)), request.output);
}

int run(const Try& command, const EngineRequest& request) {
  catch_interrupts();
  trial::TrialRequest job;
  std::vector<std::string> both = {"model.initialisation_seeds=by_name"};
  for (const std::string& change : overrides(command.both, request)) {
    both.push_back(change);
  }
  std::vector<std::string> changed = both;
  changed.insert(changed.end(), command.set.begin(), command.set.end());
  job.base = compare::load_configs({command.base}, both).front();
  job.change = compare::load_configs({command.change.empty() ? command.base : command.change}, changed).front();
  if (job.change.name == job.base.name) {
    job.change.name += command.set.empty() ? "_2" : fmt::format("+{}", fmt::join(command.set, ","));
  }
  if (command.change.empty() && !command.change_seed &&
      config::flatten(job.base.config) == config::flatten(job.change.config)) {
    user_error("try: --set: {}: the base has {} already; give another value", fmt::join(command.set, ", "),
               command.set.size() == 1 ? "this value" : "these values");
  }
  job.budget = command.budget;
  job.test.pairs = static_cast<int>(command.pairs);
  job.change_seed = command.change_seed;
  job.tune = command.tune;
  job.out = command.out;
  job.cache = cache_folder();
  job.command = request.command_line;
  const trial::Trial trial = trial::run_trial(job);
  if (trial.interrupted) {
    log_info("interrupted: repeat the command to continue");
    return interrupt_status();
  }
  if (parallel::default_group().leads()) {
    request.output.document(trial::to_json(trial));
    request.output.text(trial::render_table(trial) + trial.sentence + "\n");
  }
  constexpr int kDiscard = 3, kUndecided = 4;
  return trial.decision == trial::Decision::keep      ? 0
         : trial.decision == trial::Decision::discard ? kDiscard
                                                      : kUndecided;
}

}  // namespace headroom::cli
