// The records of a training run in its folder, other than checkpoints. train() writes config.toml, metrics.jsonl and
// samples.jsonl, adds run.json (the run's origin) when the run starts, and result.json when it has finished or
// diverged.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "history.h"
#include "training/tasks/figures.h"
#include "training/tasks/task.h"

namespace headroom::train {

inline constexpr const char* kOriginFile = "run.json";
inline constexpr const char* kResultFile = "result.json";

struct TrainResult {
  std::int64_t steps = 0;
  double train_loss = NAN;         // mean over the last logged interval; NaN if nothing has been logged
  double tokens_per_second = 0.0;  // excluding evaluation and checkpoints
  double seconds = 0.0;
  double cpu_seconds = 0.0;  // of all threads of the leading rank during these seconds
  double core_share = 0.0;   // of the cores that the rank's threads could use: cpu_seconds / (seconds * threads)
  double epochs = 0.0;       // passes over the training data; 0: less than one
  std::int64_t peak_memory_bytes = 0;
  std::int64_t parameters = 0;
  std::string parameters_sha256;  // parameters_sha256() in state.h
  bool interrupted = false;       // Ctrl-C: a checkpoint was written
  std::vector<ValidationPoint> validation;
  std::optional<std::int64_t> best_step;  // with train.keep_best: step of the best validation

  // Returns the figures of the best validation with train.keep_best, else of the last one; empty if there is none.
  tasks::Figures figures() const { return validation.empty() ? tasks::Figures() : chosen()->figures; }
  // Returns the validation with these figures; there must be one.
  std::vector<ValidationPoint>::const_iterator chosen() const {
    const auto best = std::ranges::find(validation, best_step, &ValidationPoint::step);
    return best == validation.end() ? validation.end() - 1 : best;
  }
};

// Returns the keys of `headroom train --json` and the task's figures.
Json to_json(const TrainResult& result, const tasks::Task& task);

// The data of a run, as descriptions that identify the content; empty without a tokenizer.
struct RunData {
  std::string training, validation, tokenizer;
};
RunData run_data(const tasks::TaskData& data);

// A text that a model generated during its training.
struct SampleText {
  std::int64_t step = 0;
  std::string prompt, text;
};

// The contents of a run's metrics.jsonl and samples.jsonl.
struct RunLog {
  std::vector<TrainingPoint> training = {};
  std::vector<ValidationPoint> validation = {};
  std::vector<SampleText> samples = {};
  std::int64_t peak_memory_bytes = 0;  // 0: unknown
};

// Where and from what a run was trained. Empty: unknown, because an earlier version trained the run.
struct Origin {
  std::string command;  // the command line; empty for the runs of a comparison
  std::string machine;  // CPU, threads, precision, torch version
  std::string program;  // version that trained the run: "headroom 0.1.0, commit 59f40b3"
  RunData data = {};
};

// Returns the origin of a run that this process trains.
Origin origin_here(const std::string& command, const config::TrainOptions& options, const RunData& data);

// Figures of a run on test data that was not used for validation.
struct TestResult {
  std::string data;  // its identity; empty: not tested
  tasks::Figures figures;
};

// One training run, as its run folder records it.
struct TrainedRun {
  std::int64_t seed = 1;
  TrainResult result;
  RunLog log;
  Origin origin;
  std::string finished;  // date and time; empty: not finished
  TestResult test = {};
  std::string diverged;  // description of the loss or gradient that was not finite; empty: the run did not diverge
};

// Writes run.json, and removes the results of an earlier, shorter run.
void write_origin(const Origin& origin, const std::filesystem::path& folder);

// Writes result.json. `diverged` as in TrainedRun.
void write_result(const TrainResult& result, const std::string& diverged, const Origin& origin, const tasks::Task& task,
                  const std::filesystem::path& folder);

void write_test(const TestResult& test, const std::filesystem::path& folder);

// Reads the config with which the folder's run was trained.
config::Config read_run_config(const std::filesystem::path& folder);

// Reads result.json and the logs. Throws UserError naming result.json if train() did not write it.
TrainedRun read_finished_run(const std::filesystem::path& folder, const config::Config& config,
                             const tasks::Task& task);

// Like read_finished_run(), for a run that may be unfinished: then the last logged values are used as its result.
// `config` must be the folder's.
TrainedRun read_run(const std::filesystem::path& folder, const config::Config& config, const tasks::Task& task);

// Reads run.json; empty if there is none.
Origin recorded_origin(const std::filesystem::path& folder);

// Returns "headroom 0.1.0, commit 59f40b3"; without the commit if the build does not know it.
std::string program_version();

// Returns the current time as "2026-03-01 10:12 UTC".
std::string utc_now();

}  // namespace headroom::train
