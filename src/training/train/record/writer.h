// Writes the output of a run: the files in its folder, and the terminal. Training itself does not depend on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "headroom/store/checkpoint.h"
#include "history.h"
#include "training/train/step/state.h"

namespace headroom::train {

// The metric files of a run: JSON lines (metrics.jsonl, samples.jsonl) and TensorBoard's event files (TFRecords of
// Event messages, encoded here).

// Appends each line with a single write, so that a killed run leaves complete lines and at most one truncated line,
// which is removed when the file is opened again. Throws Error naming the file and the reason if it cannot be written.
class MetricsLog {
 public:
  // Rewrites the file without lines of steps after `last_step`, because a resumed run will write them again.
  MetricsLog(std::filesystem::path path, std::int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Both throw Error if the file has been deleted or moved, because its folder then no longer belongs to the run.
  void append(const Json& line);
  void sync();  // to disk, before a checkpoint that relies on these lines

 private:
  void require_in_place() const;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

struct Scalar {
  std::string_view tag;
  double value;
};

// One `events.out.tfevents.<time>.<pid>.headroom` file. A resumed run opens a new one, and TensorBoard shows both as
// one curve: the session mark at its start makes readers discard the later steps of an earlier file.
class EventWriter {
 public:
  // Throws Error naming a file that cannot be created.
  EventWriter(const std::filesystem::path& folder, std::int64_t first_step);
  // Writes one event; omits values that are not finite. Throws Error if the file cannot be written.
  void write(std::int64_t step, std::span<const Scalar> scalars);

 private:
  void write_record(std::string_view payload);
  std::filesystem::path path_;
  std::ofstream file_;
};

// CRC-32C (Castagnoli), rotated and offset as in TFRecord.
std::uint32_t masked_crc32c(std::string_view bytes);

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
  void validation(const std::vector<ValidationPoint>& all);  // logs the last element
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
