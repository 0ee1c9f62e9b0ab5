// Trains the runs of a plan.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"
#include "training/train/record/run_folder.h"

namespace headroom::compare {

using train::TrainedRun;

// Whether the planned run's folder contains a finished run with the same configuration.
bool is_finished(const PlannedRun& run);

// Throws UserError if the planned run's folder contains a run of another configuration.
void check_folder(const PlannedRun& run);

// Trains planned runs, or reads finished ones from their folders, and caches the results.
class Runs {
 public:
  // `group`: the ranks that train each run together.
  Runs(const tasks::Task& task, std::filesystem::path cache, parallel::GlooGroup* group = &parallel::default_group())
      : task_(task), cache_(std::move(cache)), group_(group) {}

  // Trains, resumes or reads the run. The returned run may be interrupted (`result.interrupted`) or have diverged
  // (`diverged`). Throws InUseError if another process trains it. `title` is the label of the progress bar.
  const TrainedRun& train(const PlannedRun& run, const std::string& title);
  // Returns the run if it has finished or was trained by this object, else null.
  const TrainedRun* find(const PlannedRun& run);
  // Evaluates a finished run on these files, with the parameters of its figures, and stores the result in its folder;
  // a stored result for the same data is read instead. Throws InterruptedError after Ctrl-C.
  void test(const PlannedRun& run, const std::vector<std::string>& files);
  // Returns the run's headline figure; NaN if find() returns null.
  double headline(const PlannedRun& run);
  // Returns the index of the tuned values whose run has the best headline figure; ties go to the first. Returns 0 if no
  // figure is finite.
  std::size_t best_choice(const PlannedModel& model);
  // Whether all runs of the plan have finished.
  bool have_finished(const Plan& plan);

 private:
  TrainedRun train_or_resume(const PlannedRun& run, const std::string& title) const;
  const tasks::Task& task_;
  std::filesystem::path cache_;
  parallel::GlooGroup* group_;
  std::map<std::filesystem::path, TrainedRun> known_;
};

struct Outcome {
  bool interrupted = false;  // stopped by Ctrl-C
  std::string failure;       // name and error of the first run that diverged without permission; empty: none
};

// Trains all unfinished runs: first each model with each combination of tuned values and the first seed, then each
// model's best combination with the other seeds (Plan::tuned_apart). A model that diverges with the first seed is not
// trained with other seeds; the other models still are.
Outcome execute(const Plan& plan, Runs& runs);

}  // namespace headroom::compare
