// The result of a comparison of models, each trained with one or several seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "scaling.h"
#include "tools/compare/request.h"
#include "training/tasks/task.h"
#include "training/train/record/run_folder.h"

namespace headroom::compare {

using train::Origin;
using train::RunLog;
using train::SampleText;
using train::TrainedRun;

// One combination of tuned values and its headline figure with ComparedRun::tuning_seed; NaN if the run diverged.
struct TuningResult {
  Values values;
  double headline = 0.0;
  bool chosen = false;
};

// One model of a comparison.
struct ComparedRun {
  std::string name;
  std::string family;                                     // family of model sizes; empty: none
  config::Config config;                                  // of the first compared seed
  std::filesystem::path folder;                           // of the first compared seed
  Values values;                                          // of the tuned or varied keys
  std::vector<TrainedRun> trained;                        // at least one, ascending by seed
  std::vector<TuningResult> tuning;                       // empty if nothing was tuned
  std::int64_t tuning_seed = 1;                           // with which the tuned values were selected
  std::int64_t attention_macs = 0, attention_memory = 0;  // paper accounting, per layer and sequence
  Json executed;                                          // executed multiply-accumulates, as in cost::cost_json
  std::vector<std::string> samples;                       // continuation of each prompt by the first seed

  void count_costs();  // sets attention_macs, attention_memory and executed
  const tasks::Task& task() const;
  const tasks::FigureKind& headline_kind() const { return tasks::headline(task().figures()); }
  const train::TrainResult& result() const { return trained.front().result; }  // of the first seed
  // Returns a figure of each seed (TrainResult::figures()); NaN where it is missing.
  std::vector<double> over_seeds(const std::string& figure) const;
  std::vector<double> tests_over_seeds(const std::string& figure) const;  // likewise, on the test data
  double headline() const;  // mean over the seeds of the task's headline figure
  bool has_figure() const;  // headline() is finite: every seed was validated and none diverged
  // compares headline(); a run with a figure is better than one without
  bool better_than(const ComparedRun& other) const;
  double tokens() const;                                                 // training tokens of the first seed
  double step_macs() const { return executed.value("step_macs", 0.0); }  // multiply-accumulates
  double mean_seconds() const;                                           // training time, over the seeds
  double core_share() const;                                             // mean over the seeds; 0: unknown
  // Training tokens of all seeds divided by their training times, so that ratios agree with those of mean_seconds().
  double tokens_per_second() const;
  double peak_memory_bytes() const;  // maximum over the seeds
};

struct CompareResult {
  Kind kind = Kind::comparison;
  std::string title, about, command;
  std::vector<ComparedRun> runs;      // sweep: best first
  std::vector<Variation> variations;  // tuned or varied keys and their values
  std::vector<std::string> prompts;
  std::string sampling;            // how the sample texts were generated
  std::vector<std::string> notes;  // sentences on how the runs' conditions differ
  Scaling scaling;                 // empty without families
  EffectiveSpeedups speedups;      // of a comparison without families
  Conclusion conclusion;
  std::vector<CompareResult> further;  // comparisons shown below this one: the demo's look-ups
  std::filesystem::path report;
  int refresh_seconds = 0;   // reload interval of a watched page; 0: the page does not reload
  std::string failure;       // name and error of the first run that diverged, tuning aside; empty: none
  bool interrupted = false;  // Ctrl-C: the same request resumes; the page was not written
};

struct ComparisonRecord;  // run/comparison_file.h
class Runs;               // run/execution.h

// Returns the result of all finished runs of the plan, with a note that names the unfinished ones.
CompareResult make_result(const ComparisonRecord& record, Runs& runs);

}  // namespace headroom::compare
