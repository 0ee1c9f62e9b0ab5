// What a comparison finds: models, each trained with one or several seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "scaling_result.h"
#include "training/tasks/task.h"
#include "training/train/loop/train.h"

namespace headroom::compare {

using config::Variation;

// Keys with the value that a run has of each, in the spelling of config::flatten.
using Values = std::vector<std::pair<std::string, std::string>>;

// What a model wrote while it trained.
struct WrittenSample {
  std::int64_t step = 0;
  std::string prompt, text;
};

struct History {
  std::vector<train::TrainingPoint> training = {};
  std::vector<train::ValidationPoint> validation = {};
  std::vector<WrittenSample> samples = {};
  std::int64_t peak_memory_bytes = 0;  // 0: not known
};

// One training of a model.
struct TrainedRun {
  std::int64_t seed = 1;
  train::TrainResult result;
  History history;       // from its metrics and samples
  std::string machine;   // what it was measured on and with
  std::string program;   // that trained it: "headroom 0.1.0, commit 59f40b3"
  std::string finished;  // when
  std::string diverged;  // not empty: how the loss or the gradient stopped being finite, and `result` is empty
};

// A combination of tuned values and the headline figure that the first seed reached with it; NaN: diverged.
struct Tried {
  Values values;
  double headline = 0.0;
  bool chosen = false;
};

// One model's line of a comparison.
struct ComparedRun {
  std::string name;
  std::string family;                                     // of which it is one size; empty: of none
  config::Config config;                                  // of the first seed
  std::filesystem::path folder;                           // of the first seed
  Values values;                                          // of the keys that were tuned or varied
  std::vector<TrainedRun> trained;                        // at least one; a seed each, in ascending order
  std::vector<Tried> tried;                               // empty: nothing was tuned
  std::int64_t attention_macs = 0, attention_memory = 0;  // paper accounting, a layer and sequence
  Json executed;                                          // MACs really executed, as in cost::cost_json
  std::vector<std::string> samples;                       // the continuation of each prompt, by the first seed

  const tasks::Task& task() const;
  const train::TrainResult& result() const { return trained.front().result; }  // the first seed's
  // A figure of the last validation, a value a seed, NaN where there is none.
  std::vector<double> over_seeds(const std::string& figure) const;
  double headline() const;  // the mean over the seeds of the task's headline figure
  bool has_figure() const;  // headline() is a finite number: all seeds were validated and none diverged
  double mean_of(double train::TrainResult::*measured) const;  // over the seeds
  double peak_memory_bytes() const;                            // the highest of the seeds
};

// A few short sentences, a point each: what won, by how much and how sure that is, what it cost.
using Conclusion = std::vector<std::string>;

// How the runs are related, and so what is shown and said of them.
enum class Kind {
  comparison,  // models
  demo,        // the demo's three models (demo.h)
  sweep,       // one model with combinations of values
  run,         // one training by itself
};

struct CompareResult {
  Kind kind = Kind::comparison;
  std::string title, about, command;
  std::vector<ComparedRun> runs;      // of a sweep: best first
  std::vector<Variation> variations;  // keys that were tuned or varied, with their values
  std::vector<std::string> prompts;
  std::string sampling;            // how the sample texts were drawn
  std::vector<std::string> notes;  // sentences: how the runs' conditions differed
  Scaling scaling;                 // of the families that the runs belong to
  Conclusion conclusion;
  std::filesystem::path report;
  int refresh_seconds = 0;   // the page loads itself again so often, while it is watched (compare.h); 0: never
  std::string failure;       // the first run that diverged and may not, with what happened; empty: none
  bool interrupted = false;  // Ctrl-C: the same request continues where it was; no report yet
};

}  // namespace headroom::compare
