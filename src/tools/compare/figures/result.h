// The result of a comparison of models, each trained with one or several seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "scaling.h"
#include "tools/compare/request.h"
#include "tools/compare/statistics.h"
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
  // Training tokens of all seeds divided by their training times, so that ratios agree with ratios of mean_seconds().
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

// Sentences that compare runs, correct for any figures.

// Names the run with the best headline figure, its difference from the first run (from the runner-up if the first is
// best) and the difference in cost. With several seeds, a difference counts only if its 95% interval excludes zero.
Conclusion conclude(const std::vector<ComparedRun>& runs);

// Like conclude(), for a sweep's runs, best first.
Conclusion conclude_sweep(const std::vector<ComparedRun>& runs);

// Like conclude(), for the demo's three runs: SwitchHead against both dense models.
Conclusion conclude_demo(const std::vector<ComparedRun>& runs);

// Returns sentences on what else differs between the runs: data, budget, training except for the keys in `expected`,
// sizes, machines; and on small validation data and best values at the edge of those tried.
std::vector<std::string> notes_on(const CompareResult& result, const std::set<std::string>& expected);

// Sets the speedups of a comparison without families, and adds the sentences on them, or on why there are none.
void add_speedups(CompareResult& result);

// Returns the paired difference of the headline figure over the seeds; nullopt if either run has fewer than two.
std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other);

// Compares the headline figures: "0.21 below dense_h8 (7.58)", "0.23 above ...", "the same as ...". With several seeds:
// "0.21 [0.12, 0.30] below dense_h8 (7.58)", or "not significantly different from ..." if the interval of the paired
// difference includes zero. `called` replaces the other's name.
std::string headline_comparison(const ComparedRun& run, const ComparedRun& other, std::string_view called = {});

// Returns "learning rate 0.001 (not tuned), 12.3 tokens per parameter and 3.1 epochs"; without epochs if the data was
// not read more than once.
std::string conditions_of(const std::vector<ComparedRun>& runs);

// Returns a sentence with what a conclusion about the runs rests on: conditions_of() and the number of seeds.
std::string basis_of(const std::vector<ComparedRun>& runs);

// Returns sentences on runs whose times other work on the machine has distorted: their shares of the cores are
// unequal, or their speeds differ from the speeds of their first steps.
std::vector<std::string> load_notes(const std::vector<ComparedRun>& runs);

// Returns "switchhead takes 0.38 times the attention MACs and 1.20 times the training time of dense; no difference in
// parameters and peak memory."
std::string cost_comparison(const ComparedRun& run, const ComparedRun& other);

}  // namespace headroom::compare
