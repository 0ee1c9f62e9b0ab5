// Writes the output of a run: the files in its folder, and the terminal. Training itself does not depend on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "headroom/config/config.h"
#include "headroom/store/checkpoint.h"
#include "training/train/loop/history.h"
#include "training/train/step/state.h"

namespace headroom::train {

// Receives the events of a run. This base class writes nothing.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual bool writes() const { return false; }

  // Called after each step. `interval` covers the steps since the last logged step.
  virtual void step(std::int64_t /*step*/, double /*loss*/, const LogInterval& /*interval*/) {}
  virtual void note(std::int64_t /*step*/, std::string_view /*what*/) {}  // shown in place of the loss

  virtual void training(const TrainingPoint& /*point*/) {}
  virtual void validation(const ValidationPoint& /*point*/) {}
  virtual void sample(std::int64_t /*step*/, const std::string& /*prompt*/, const std::string& /*text*/) {}
  virtual void warning(const std::string& /*text*/) {}
  virtual void config(const config::Config& /*config*/) {}  // called when the config has changed
  // The resolved train.checkpoint_every; 0: only at the end.
  virtual void checkpoints_every(std::int64_t /*steps*/, double /*step_seconds*/) {}

  // Save the newest and the best checkpoint. Both throw store::NotFiniteError if parameters or moments are not finite,
  // even in a writer that writes nothing. checkpoint() returns the file.
  virtual std::filesystem::path checkpoint(const store::Checkpoint& checkpoint);
  virtual void best(const store::Checkpoint& checkpoint);
};

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

// Creates the writer of metrics.jsonl, samples.jsonl, TensorBoard events, checkpoints/ and the progress bar. Removes
// lines of steps after options.step from existing files. `kinds`: the figures that validations of the run report.
std::unique_ptr<Writer> make_writer(const WriterOptions& options, const std::vector<tasks::FigureKind>& kinds);

// Writes the resolved config to the run's config.toml, with the origin of each value.
void write_config(const config::Config& config, const std::filesystem::path& folder);

// Returns the path of the checkpoint with the best validation result (train.keep_best).
std::filesystem::path best_file(const std::filesystem::path& folder);

}  // namespace headroom::train
