// The training loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/config/config.h"
#include "headroom/models/model.h"
#include "history.h"
#include "plan.h"
#include "resume.h"
#include "start.h"
#include "state.h"
#include "step.h"
#include "train.h"
#include "training/tasks/task.h"
#include "training/train/ranks/exchange.h"
#include "training/train/record/samples.h"
#include "training/train/record/writer.h"

namespace headroom::train {

class Run {
 public:
  // Goes on from `past`, or begins, with the parameters of `start` where there is one. `config` is settled: what it
  // leaves open is decided. `world` must outlive it.
  Run(config::Config config, tasks::TaskData data, const std::optional<Past>& past, History history,
      parallel::GlooGroup& world, const std::optional<Start>& start = {});

  // All steps that are left, unless Ctrl-C comes first.
  TrainResult finish(Writer& writer);

  const config::Config& config() const { return config_; }
  const tasks::Task& task() const { return task_; }
  const tasks::TaskData& data() const { return data_; }
  const models::Model& model() const { return *model_; }
  const TrainState& state() const { return state_; }
  const History& history() const { return history_; }

 private:
  StepOutcome advance(Writer& writer);
  void count(const StepOutcome& outcome, std::int64_t tokens, double seconds);
  double step_seconds() const;
  void settle(Writer& writer);
  void log(const StepOutcome& outcome, Writer& writer);
  void validate(Writer& writer);
  void sample(Writer& writer) const;
  void save(Writer& writer);
  [[noreturn]] void refuse(std::string_view what, std::int64_t step) const;
  // Whether to stop early, on which all processes agree: Ctrl-C comes to each at another time.
  bool stops() const;
  template <class Write>
  void write_state(const Write& write) const;
  TrainResult result() const;

  config::Config config_;
  const tasks::Task& task_;
  Plan plan_;
  tasks::TaskData data_;
  parallel::GlooGroup& world_;
  std::unique_ptr<models::Model> model_;
  Shares shares_;
  TrainState state_;
  std::unique_ptr<Exchange> exchange_;
  nn::Context context_;
  History history_;
  std::optional<Samples> samples_;    // where train.sample_every asks for them
  std::filesystem::path checkpoint_;  // the last one; empty before any
  std::int64_t steps_here_ = 0;       // done by this process
  double seconds_here_ = 0.0;         // in them
  double warm_seconds_here_ = 0.0;    // in those that count as its speed
  bool stop_ = false;                 // several processes: one of them was asked to stop
};

}  // namespace headroom::train
