// What happened in a run as far as it was logged, by any process that worked on it: a value that decisions are made
// from (src/training/train/loop/plan.h), so that processes with the same history decide alike. Its lines in
// metrics.jsonl are written and read here alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "training/tasks/figures.h"

namespace headroom::train {

// The steps since the previous point: means over them, unless a comment says the last.
struct TrainingPoint {
  std::int64_t step = 0;  // the last
  double seconds = 0.0;   // of training so far, evaluation and checkpoints not counted
  double loss = 0.0;
  double regulariser = 0.0;    // 0 where the model has none
  double learning_rate = 0.0;  // of the last step, as is
  double gradient_norm = 0.0;  // this
  std::int64_t tokens = 0;     // so far
  double tokens_per_second = 0.0;
  std::int64_t peak_memory_bytes = 0;  // of the process so far; 0: not known
};

// How evenly tokens spread over the experts of a bank.
struct Balance {
  double most = 0.0, least = 0.0;  // share of the most and the least used expert
  double entropy = 0.0;            // of the shares, over ln(number of experts): 1 is even, 0 a single expert
};

struct ValidationPoint {
  std::int64_t step = 0;
  double seconds = 0.0;  // as above
  tasks::Figures figures = {};
  std::int64_t tokens = 0;                      // trained on so far
  std::map<std::string, Balance> experts = {};  // by bank
  std::int64_t peak_memory_bytes = 0;           // as above
};

struct History {
  std::vector<TrainingPoint> training = {};
  std::vector<ValidationPoint> validations = {};
  std::optional<std::int64_t> best_step = {};   // of the parameters in best.safetensors, if there is one
  std::optional<std::int64_t> saved_step = {};  // of the last checkpoint

  // Of the first point and the last; NaN before any.
  double first_loss() const { return training.empty() ? NAN : training.front().loss; }
  double last_loss() const { return training.empty() ? NAN : training.back().loss; }
  // The highest of all processes that worked on the run; 0: not known.
  std::int64_t peak_memory_bytes() const;
  bool validated(std::int64_t step) const { return !validations.empty() && validations.back().step == step; }
};

Json to_json(const TrainingPoint& point);
Json to_json(const ValidationPoint& point, const std::vector<tasks::FigureKind>& kinds);
// Adds the point that the line describes, if any.
void add_line(const Json& line, const std::vector<tasks::FigureKind>& kinds, History& history);

// The lines of a metrics.jsonl, or a samples.jsonl, that are whole and of a step not after `last_step`; none where
// there is no file.
std::vector<Json> lines_until(const std::filesystem::path& file, std::int64_t last_step);

// Of a run in `folder` whose last step was `last_step`: its metrics until then.
History read_history(const std::filesystem::path& folder, std::int64_t last_step,
                     const std::vector<tasks::FigureKind>& kinds);

}  // namespace headroom::train
