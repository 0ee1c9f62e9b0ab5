// Writing a run down: its folder and what the terminal shows. The run calls it with values, and nothing that the run
// does next depends on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "headroom/config/config.h"
#include "headroom/store/checkpoint.h"
#include "training/train/loop/history.h"
#include "training/train/loop/state.h"

namespace headroom::train {

// Writes nothing: that of a process which trains along with the one that writes.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual bool writes() const { return false; }

  // After a step: its loss, and what happened since the last point.
  virtual void step(std::int64_t /*step*/, double /*loss*/, const Interval& /*interval*/) {}
  virtual void note(std::int64_t /*step*/, std::string_view /*what*/) {}  // shown in place of the loss

  virtual void training(const TrainingPoint& /*point*/) {}
  virtual void validation(const ValidationPoint& /*point*/) {}
  virtual void sample(std::int64_t /*step*/, const std::string& /*prompt*/, const std::string& /*text*/) {}
  virtual void warning(const std::string& /*text*/) {}
  virtual void config(const config::Config& /*config*/) {}  // decided anew
  // Decided: every so many steps, of which each takes so long; 0: at the end only.
  virtual void checkpoints_every(std::int64_t /*steps*/, double /*step_seconds*/) {}

  // Both throw store::NotFiniteError for parameters, or moments, that are not finite, whether or not they write. The
  // first returns the file.
  virtual std::filesystem::path checkpoint(const store::Checkpoint& checkpoint);
  virtual void best(const store::Checkpoint& checkpoint);
};

struct Place {
  std::filesystem::path folder;
  std::string title;                 // in front of the progress bar
  std::int64_t step = 0, steps = 0;  // done, in all
  std::int64_t keep_checkpoints = 1;
  bool samples = false;            // some will be written
  double step_gflop = 0.0;         // 10^9 floating-point operations of a step; 0: not known
  double machine_gflops = 0.0;     // 10^9 of them a second that the machine does at most
  ProcessGroup* peers = &alone();  // whose first one writes, and which all write their parts of checkpoints
};

// metrics.jsonl, samples.jsonl, TensorBoard's events, checkpoints/ and a progress bar. Opens the files of a run that
// is at place.step: what they say of later steps is discarded. `kinds` are the figures of its validations.
std::unique_ptr<Writer> write_into(const Place& place, const std::vector<tasks::FigureKind>& kinds);

// The run's config.toml, resolved, with where its values come from.
void write_config(const config::Config& config, const std::filesystem::path& folder);

// The file of the best parameters so far.
std::filesystem::path best_file(const std::filesystem::path& folder);

}  // namespace headroom::train
