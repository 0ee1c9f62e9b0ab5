// Trains the runs of a plan.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "plan.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"

namespace headroom::compare {

// Whether the planned run's folder holds this run, with the same settings, trained to its end.
bool is_finished(const PlannedRun& run);

// Throws UserError if the planned run's folder holds a run of another configuration.
void check_folder(const PlannedRun& run);

// Trains planned runs or reads finished ones from their folders, and caches them.
class Runs {
 public:
  // `group`: the ranks that train together; null: this process alone.
  Runs(const tasks::Task& task, std::filesystem::path cache, parallel::GlooGroup* group = nullptr)
      : task_(task), cache_(std::move(cache)), group_(group) {}

  // Trains, resumes or reads the run. It may have been interrupted (`result.interrupted`) or have diverged
  // (`diverged`). Null while another process trains it. `title` stands in front of the progress bar.
  const TrainedRun* train(const PlannedRun& run, const std::string& title);
  // The run if it has finished or was trained by this object, else null.
  const TrainedRun* find(const PlannedRun& run);

 private:
  TrainedRun train_or_resume(const PlannedRun& run, const std::string& title) const;
  const tasks::Task& task_;
  std::filesystem::path cache_;
  parallel::GlooGroup* group_;
  std::map<std::filesystem::path, TrainedRun> known_;
};

// Whether all runs of the plan have finished.
bool is_finished(const Plan& plan, Runs& runs, const tasks::Task& task);

struct Outcome {
  bool interrupted = false;  // Ctrl-C
  std::string failure;       // name and error of the first run that diverged and must not; empty: none
};

// Trains all runs that have not finished: first every choice of every model with the first seed, then every model with
// its best choice for each other seed. A model that diverges with the first seed gets no others; the rest are trained
// all the same.
Outcome execute(const Plan& plan, Runs& runs, const tasks::Task& task);

}  // namespace headroom::compare
