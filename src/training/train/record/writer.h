// Writes the output of a run: the files in its folder, and the terminal. Training itself does not depend on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/store/checkpoint.h"
#include "training/train/loop/history.h"
#include "training/train/step/state.h"

namespace headroom::train {

struct WriterOptions {
  std::filesystem::path folder;
  std::string title;                 // label of the progress bar
  std::int64_t step = 0, steps = 0;  // steps done so far, steps in total
  std::int64_t keep_checkpoints = 1;
  bool samples = false;         // whether to open samples.jsonl
  double step_gflop = 0.0;      // per step; 0 if unknown
  double machine_gflops = 0.0;  // matmul rate of all ranks together
  // The leading rank writes all files; the other ranks write only their shards of checkpoints.
  ProcessGroup* group = &alone();
};

// Receives the events of a run, and writes metrics.jsonl, samples.jsonl, TensorBoard events, checkpoints/ and the
// progress bar.
class Writer {
 public:
  Writer();  // writes nothing
  // Removes lines of steps after options.step from existing files. `kinds`: the figures that validations of the run
  // report.
  Writer(const WriterOptions& options, std::vector<tasks::FigureKind> kinds);
  ~Writer();

  bool writes() const { return files_ != nullptr; }

  // Called after each step. `interval` covers the steps since the last logged step.
  void step(std::int64_t step, double loss, const LogInterval& interval);
  void note(std::int64_t step, std::string_view what);  // shown in place of the loss
  void training(const TrainingPoint& point);
  void validation(const ValidationPoint& point);
  void sample(std::int64_t step, const std::string& prompt, const std::string& text);
  void warning(const std::string& text);
  void config(const config::Config& config);  // called when the config has changed
  // The resolved train.checkpoint_every; 0: only at the end.
  void checkpoints_every(std::int64_t steps, double step_seconds);

  // Save the newest and the best checkpoint. Both throw store::NotFiniteError if parameters or moments are not finite,
  // even in a writer that writes nothing. checkpoint() returns the file.
  std::filesystem::path checkpoint(const store::Checkpoint& checkpoint);
  void best(const store::Checkpoint& checkpoint);

 private:
  class Files;
  WriterOptions options_;
  std::unique_ptr<Files> files_;  // of the leading rank; null on the others, and if nothing is written
};

// Writes the resolved config to the run's config.toml, with the origin of each value.
void write_config(const config::Config& config, const std::filesystem::path& folder);

// Returns the path of the checkpoint with the best validation result (train.keep_best).
std::filesystem::path best_file(const std::filesystem::path& folder);

}  // namespace headroom::train
