// What a run tells while it goes on: metrics.jsonl, TensorBoard events, the progress bar. The metrics are also its
// memory of what an earlier process of the same run saw.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/core/log.h"
#include "headroom/tasks/task.h"
#include "headroom/train/state.h"
#include "headroom/train/step.h"
#include "headroom/train/train.h"
#include "metrics.h"
#include "tensorboard.h"

namespace headroom::train {

class Report {
 public:
  struct Place {
    std::filesystem::path folder;
    std::string title;
    std::int64_t step = 0, steps = 0;  // done, in all
    double step_gflop = 0.0;           // 10^9 floating-point operations of a step; 0: not known
    double machine_gflops = 0.0;       // 10^9 of them a second that the machine does at most
  };
  // Opens the files of a run that stands at place.step: what they say of later steps is forgotten. `kinds` are the
  // figures of its validations.
  Report(const Place& place, const std::vector<tasks::FigureKind>& kinds);

  void progress(const TrainState& state, const StepOutcome& outcome);
  void note(const TrainState& state, std::string_view what);  // shown in place of the loss
  // Logs and ends the state's interval.
  void log_interval(TrainState& state, const StepOutcome& outcome);
  void log_validation(const TrainState& state, const tasks::Figures& figures, const nn::ExpertUsage& usage);
  void sync() { metrics_.sync(); }

  // The last logged mean loss, and the first; NaN before any. All validations so far.
  double train_loss() const;
  double first_loss() const;
  std::vector<ValidationPoint> validations() const;

 private:
  void write(std::int64_t step, const char* group, Json line);
  std::string speed(const Interval& interval) const;
  std::vector<tasks::FigureKind> kinds_;
  double step_gflop_, machine_gflops_;
  MetricsLog metrics_;
  EventWriter events_;
  std::string note_;  // of the last step
  Progress progress_;
};

// What is to be said of a finished run whose mean losses these were, `guessing` that of a model that knows nothing;
// empty: nothing. A loss that rose a little is no divergence: it must have left that of guessing far behind as well.
std::string remark_on(double first_loss, double last_loss, double guessing);

// How evenly tokens spread over the experts counted in `counts`.
struct Balance {
  double most = 0.0, least = 0.0;  // share of the most and the least used expert
  double entropy = 0.0;            // of the shares, over ln(number of experts): 1 is even, 0 a single expert
};
Balance balance_of(const at::Tensor& counts);

}  // namespace headroom::train
