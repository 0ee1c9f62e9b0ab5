// The logged progress of a run, including earlier processes if it was resumed. TrainingPlan is a pure function of it,
// so ranks with the same history make the same decisions. Also reads and writes the lines of metrics.jsonl.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/nn/context.h"
#include "training/tasks/figures.h"

namespace headroom::train {

// One line of training metrics. Means are over the steps since the previous point.
struct TrainingPoint {
  std::int64_t step = 0;
  double seconds = 0.0;        // training time so far, excluding evaluation and checkpoints
  double loss = 0.0;           // mean
  double regulariser = 0.0;    // mean; 0 if the model has none
  double learning_rate = 0.0;  // of the last step
  double gradient_norm = 0.0;  // of the last step
  std::int64_t tokens = 0;     // so far
  double tokens_per_second = 0.0;
  std::int64_t peak_memory_bytes = 0;  // of this process so far; 0 if unknown
};

// How evenly tokens are distributed over the experts of a bank.
struct ExpertBalance {
  double most = 0.0, least = 0.0;  // fractions of tokens routed to the most and the least used expert
  double entropy = 0.0;            // of the fractions, divided by ln(experts): 1 is uniform, 0 a single expert
};
// `counts`: number of tokens routed to each expert.
ExpertBalance balance_of(const at::Tensor& counts);
std::map<std::string, ExpertBalance> balance_of(const nn::ExpertUsage& usage);

struct ValidationPoint {
  std::int64_t step = 0;
  double seconds = 0.0;  // training time so far
  tasks::Figures figures = {};
  std::int64_t predictions = 0;                       // number of predictions if only part of the data was read; else 0
  std::int64_t tokens = 0;                            // training tokens so far
  std::map<std::string, ExpertBalance> experts = {};  // by bank
  std::int64_t peak_memory_bytes = 0;                 // as in TrainingPoint
};

struct History {
  std::vector<TrainingPoint> training = {};
  std::vector<ValidationPoint> validations = {};
  std::optional<std::int64_t> best_step = {};   // step of the parameters in best.safetensors
  std::optional<std::int64_t> saved_step = {};  // step of the last checkpoint

  // First and last logged loss; NaN if nothing has been logged.
  double first_loss() const { return training.empty() ? NAN : training.front().loss; }
  double last_loss() const { return training.empty() ? NAN : training.back().loss; }
  // Returns the maximum over all processes that have worked on the run; 0 if unknown.
  std::int64_t peak_memory_bytes() const;
  // Whether the parameters after `step` steps were validated: on a part of the data, or on all of it.
  bool validated(std::int64_t step, bool part) const;
};

// Returns the validations on the same data as the first one, the learning curve. A final validation on all data after
// validations on a part is excluded.
std::vector<ValidationPoint> curve_of(const std::vector<ValidationPoint>& validations);

Json to_json(const TrainingPoint& point);
// `beside_curve`: the point is not on the run's learning curve, and its figures are in an object "whole".
Json to_json(const ValidationPoint& point, const std::vector<tasks::FigureKind>& kinds, bool beside_curve = false);

// Returns the complete lines of a metrics.jsonl or samples.jsonl up to step `last_step`; empty if the file is missing.
std::vector<Json> lines_until(const std::filesystem::path& file, std::int64_t last_step);

// Reads the points of the run in `folder` up to step `last_step`.
History read_history(const std::filesystem::path& folder, std::int64_t last_step,
                     const std::vector<tasks::FigureKind>& kinds);

// Fractions of the steps after which a recipe records training losses (config::Config::recorded_losses, in this order).
// Comparing a run with them reveals problems early.
inline constexpr std::array<double, 5> kRecordedShares = {0.05, 0.1, 0.25, 0.5, 1.0};

// If the last logged step is the first to reach one of these fractions, compares the mean training loss of the last 5%
// of the steps with the recorded one: "step 35 (5%): training loss 5.12, as recorded (5.13)". Otherwise returns "".
std::string compare_with_recorded(const std::vector<double>& recorded, const History& history, std::int64_t steps);

// Returns the key of a config that records the losses of a finished run: "losses = [5.13, 4.8, 4.1, 3.7, 3.5]". Empty
// if the run has logged too little.
std::string losses_key(const History& history, std::int64_t steps);

}  // namespace headroom::train
