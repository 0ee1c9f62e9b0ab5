// The training loop of an opened run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/models/model.h"
#include "plan.h"
#include "start.h"
#include "train.h"
#include "training/tasks/task.h"
#include "training/train/ranks/gradient_reducer.h"
#include "training/train/record/history.h"
#include "training/train/record/writer.h"
#include "training/train/step/state.h"
#include "training/train/step/step.h"

namespace headroom::train {

struct RunParts {
  config::Config config;  // with all keys resolved that depend on the machine or on earlier processes
  tasks::TaskData data;
  History history = {};
  std::int64_t predictions = 0;              // Validations::predictions
  std::vector<double> recorded_losses = {};  // TrainRequest::recorded_losses
  std::filesystem::path out = {};            // TrainRequest::out
  ShardedCall sharded = {};                  // TrainRequest::sharded
  // The run continues from `resumed`, or starts from `initial`, or from random parameters. Used by the constructor
  // only.
  const ResumePoint* resumed = nullptr;
  const InitialParameters* initial = nullptr;
};

class Run {
 public:
  // `group` must outlive the run.
  Run(RunParts parts, parallel::GlooGroup& group);

  // Runs the remaining steps; stops early on Ctrl-C.
  TrainResult finish(Writer& writer);

  const config::Config& config() const { return config_; }
  // Returns the config for config.toml, from which the same run can be trained again. train.evaluate_every stays "auto"
  // if validations read part of the data, because no number expresses that.
  config::Config written_config() const;
  const tasks::Task& task() const { return task_; }
  const tasks::TaskData& data() const { return data_; }
  const models::Model& model() const { return *model_; }
  const TrainState& state() const { return state_; }
  const History& history() const { return history_; }
  // Returns the logged steps and time as the result of a run that has diverged.
  TrainResult last_logged() const;

 private:
  StepOutcome advance(Writer& writer);
  void count(const StepOutcome& outcome, std::int64_t tokens, double seconds, double cpu);
  double step_seconds() const;
  void resolve_checkpoint_interval(Writer& writer);
  void log(const StepOutcome& outcome, Writer& writer);
  void validate(std::int64_t most_predictions, Writer& writer);
  void sample(Writer& writer) const;
  void save(Writer& writer);
  [[noreturn]] void throw_diverged(std::string_view what, std::int64_t step) const;
  // Returns whether to stop early. All ranks return the same value, although Ctrl-C reaches them at different times.
  bool stops() const;
  template <class Write>
  void write_state(const Write& write) const;
  store::Checkpoint checkpoint() const;
  TrainResult result() const;

  config::Config config_;
  const tasks::Task& task_;
  TrainingPlan plan_;
  tasks::TaskData data_;
  parallel::GlooGroup& group_;
  ShardedCall sharded_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<Teacher> teacher_;  // null: none
  TrainState state_;
  std::unique_ptr<GradientReducer> reducer_;  // null: sharded
  nn::Context context_;
  History history_;
  std::vector<double> recorded_losses_;
  std::string sample_prompt_;         // used by train.sample_every
  std::filesystem::path checkpoint_;  // last checkpoint; empty if there is none
  // Counts for this process only, which may have resumed the run.
  std::int64_t steps_here_ = 0;
  double seconds_here_ = 0.0;
  double warm_seconds_here_ = 0.0;  // excluding the first steps
  bool stop_ = false;               // with several ranks: some rank was asked to stop
};

}  // namespace headroom::train
