// The runs of a comparison: trained, resumed, or kept from before, each in a folder of its own.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "plan.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"

namespace headroom::compare {

// The config that a run folder was trained with.
config::Config folder_config(const std::filesystem::path& folder);

// Whether the planned run's folder holds it, with the same settings and trained to its end.
bool is_carried_out(const PlannedRun& run);

// Throws UserError when the planned run's folder holds a run of another configuration.
void check_folder(const PlannedRun& run);

class Runs {
 public:
  // `world`: those that train together; null: this process alone.
  Runs(const tasks::Task& task, std::filesystem::path cache, parallel::GlooGroup* group = nullptr)
      : task_(task), cache_(std::move(cache)), group_(group) {}

  // The finished run, one that was interrupted, as result.interrupted says, or one that diverged, as `diverged` does;
  // null while another process trains it. `title` is in front of the progress bar.
  const TrainedRun* train(const PlannedRun& run, const std::string& title);
  // The run in this folder if it has finished or was trained here, else null.
  const TrainedRun* find(const PlannedRun& run);

 private:
  TrainedRun train_anew(const PlannedRun& run, const std::string& title) const;
  const tasks::Task& task_;
  std::filesystem::path cache_;
  parallel::GlooGroup* group_;
  std::map<std::filesystem::path, TrainedRun> known_;
};

}  // namespace headroom::compare
